"""The controller's shell: tails the journal, prepares groups, serves micro-batches, finds checkpoints, writes the status."""
