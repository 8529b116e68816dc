"""Per harness: command line, environment, role rules. shell_agent.py beside program/ (the agent itself, stdlib only)."""
