"""Before any compute: what each node of a run has (probe.py), what its sandboxes see (sandbox_trial.py), whether nodes reach each other
(meeting.py), what that means (judge.py)."""
