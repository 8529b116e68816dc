"""The agent programs themselves: they run in a sandbox, in processes of their own, and import nothing of gyre_hpc."""
