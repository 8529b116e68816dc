"""Before any compute: what each node of a run has (probe.py), whether they reach each other (meeting.py), what that means (judge.py)."""
