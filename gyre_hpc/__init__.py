"""gyre_hpc: elastic online RL for agents whose single run lasts hours."""

__version__ = "0.1.0"
