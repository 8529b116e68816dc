"""What a run loses while its processes are killed one after another."""
