"""Shell of the cell machine: a leader (rank 0) that hosts it, and follower ranks that do what the leader is told.

run.py leads, follow.py follows; rank.py is what every rank does for a command, crew.py asks all ranks for one. Trainer
work runs in one thread per rank, never in the leader's loop. The ranks hold one model together, in the engine as in the
trainer; with cluster.tensor_parallel=1 each trains on a copy of its own, and the leader's rank alone serves.
"""
