"""Task suites: shell_drill (generated small terminal tasks)."""
