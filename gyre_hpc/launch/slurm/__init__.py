"""A run as one SLURM job: submitted from a login node, one supervisor per node, chained over allocations.

submit: at the login node. job: on each node. chain: what follows an allocation. sbatch: the only file that knows submitit.
"""
