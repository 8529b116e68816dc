"""What a preemption costs a run whose executions are taken up from the journal."""
