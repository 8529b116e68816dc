"""What a runner's actions do: workspaces that take a moment, agents, scores that follow from the execution's name."""

import random
from typing import Any

from gyre_hpc.machines.execution import (
    HarnessEnd,
    MeasureUsage,
    PrepareWorkspace,
    RemoveWorkspace,
    RunHarness,
    Scored,
    ScoreWorkspace,
    StopHarness,
    SweepWorkspaces,
    Unscorable,
)
from gyre_hpc.simulation.harness import Agent
from gyre_hpc.simulation.process import ActionFailed, Process, Running


class RunnerWorld:
    def __init__(self, process: Process) -> None:
        self.process, self.sim = process, process.sim
        self._agents: dict[str, tuple[Agent, Running]] = {}

    def handlers(self) -> dict[type, Any]:
        return {
            PrepareWorkspace: self._prepare, RunHarness: self._run, StopHarness: self._stop, ScoreWorkspace: self._score,
            RemoveWorkspace: self._quick, SweepWorkspaces: self._quick, MeasureUsage: self._measure,
        }  # fmt: skip

    def _quick(self, running: Running, action: Any) -> None:
        running.end_after(self.sim.kernel.short(0.01), lambda: None)

    def _measure(self, running: Running, action: Any) -> None:
        running.end_after(0.0002, lambda: 0.0)

    def _prepare(self, running: Running, action: PrepareWorkspace) -> None:
        self.sim.watch.begins(self.process, action.begin)

        def work() -> None:
            if random.Random(f"workspace {action.begin.execution}").random() < 0.02:
                raise ActionFailed("OSError", "no room for a workspace")

        running.end_after(self.sim.kernel.short(0.05), work)

    def _run(self, running: Running, action: RunHarness) -> None:
        execution = action.begin.execution

        def done(finished: bool) -> None:
            self._agents.pop(execution, None)
            limit = "memory" if not finished and random.Random(f"limit {execution}").random() < 0.2 else ""
            running.end_after(0.01, lambda: HarnessEnd(code=0 if finished else 1, started=True, finished=finished, limit=limit))

        if random.Random(f"sandbox {execution}").random() < 0.02:
            running.end_after(0.05, lambda: HarnessEnd(code=1, started=False, finished=False, tail="no sandbox"))
            return
        agent = Agent(self.process, execution, action.gateway, done, action.begin.life)
        self._agents[execution] = (agent, running)
        running.on_stop = agent.stop
        self.process.later(self.sim.kernel.short(0.1), lambda: None if agent.is_over else agent.start())

    def _stop(self, running: Running, action: StopHarness) -> None:
        found = self._agents.get(action.execution)
        if found is not None:
            agent = found[0]
            if not agent.is_stuck and (action.force or not agent.is_hanging):
                self.process.later(0.01, lambda: agent.end(False))
        running.end_after(0.001, lambda: None)

    def _score(self, running: Running, action: ScoreWorkspace) -> None:
        dice = random.Random(f"score {action.begin.execution}")

        def work() -> Scored | Unscorable:
            if dice.random() < 0.02:
                raise ActionFailed("RuntimeError", "checker crashed")
            if dice.random() < 0.04:
                return Unscorable("nothing to score")
            value = dice.choice([0.0, 0.5, 1.0])
            return Scored(value=value, passed=value == 1.0)

        self.process.later(0.01, lambda: running.progress(None))
        running.end_after(self.sim.kernel.short(0.03), work)
