"""Runner: the shell of the execution machine. Workspaces, sandboxed harnesses, scoring; no torch.

machine ── Start(RunHarness) ──▶ harnesses.py ──socket──▶ warden (one process) ── fork ──▶ keeper (per execution) ──▶ sandbox
        ── Start(ScoreWorkspace) ──▶ scorer.py ──pipe──▶ scorer process (killed when it hangs)
"""
