"""Pure decisions: which cell changes role now, and why. Controller and simulator run this same code."""
