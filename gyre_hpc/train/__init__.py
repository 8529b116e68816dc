"""Trainers behind one interface: embedded (our decoder) and timed (waits). Losses, optimizer, warm start, checkpoints."""
