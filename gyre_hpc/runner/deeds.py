"""The actions of the execution machine on real folders and processes. Translation only."""

import asyncio
import resource
from collections.abc import Callable
from typing import Any

from gyre_hpc.config.schema import Config
from gyre_hpc.harnesses.base import Harness
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
)
from gyre_hpc.protocol.to_runner import Begin
from gyre_hpc.runner.harnesses import Harnesses
from gyre_hpc.runner.plans import Plans
from gyre_hpc.runner.scorer import Scorer
from gyre_hpc.runner.warden.wire import Run
from gyre_hpc.runner.workspaces import Workspaces
from gyre_hpc.sandboxes import Plan, Sandbox
from gyre_hpc.suites.base import Suite

Tell = Callable[[Any], None]


class Deeds:
    """What a runner can do."""

    def __init__(
        self,
        *,
        config: Config,
        run_token: str,
        suite: Suite,
        harness: Harness,
        sandbox: Sandbox,
        workspaces: Workspaces,
        harnesses: Harnesses,
        scorer: Scorer,
    ) -> None:
        self._suite, self._harness, self._sandbox = suite, harness, sandbox
        self._workspaces, self._harnesses, self._scorer = workspaces, harnesses, scorer
        self._plans = Plans(config=config, run_token=run_token, suite=suite, harness=harness, sandbox=sandbox, workspaces=workspaces)

    def actions(self) -> dict[type, Any]:
        return {
            PrepareWorkspace: self.prepare,
            RunHarness: self.run,
            StopHarness: self.stop,
            ScoreWorkspace: self.score,
            RemoveWorkspace: self.remove,
            SweepWorkspaces: self.sweep,
            MeasureUsage: self.measure,
        }

    async def prepare(self, key: str, action: PrepareWorkspace, tell: Tell) -> None:
        task = self._suite.task(action.begin.split, action.begin.task)
        await asyncio.to_thread(self._workspaces.prepare, action.begin.execution, task)

    async def run(self, key: str, action: RunHarness, tell: Tell) -> HarnessEnd:
        begin = action.begin
        launch = self._plans.launch(begin, action.gateway)
        await asyncio.to_thread(self._workspaces.furnish, begin.execution, launch.files)
        ended = await self._harnesses.run(self.request(begin, self._plans.plan(begin, action.gateway, launch)))
        finished = ended.code in self._harness.finished_codes and not ended.limit
        return HarnessEnd(ended.code, ended.started, finished, ended.limit, ended.cpu_s, ended.tail)

    def request(self, begin: Begin, plan: Plan) -> Run:
        """What the warden is to run: the harness's own command line inside the sandbox's."""
        return Run(
            id=begin.execution,
            argv=self._sandbox.wrap(plan),
            environment=plan.environment,
            folder=str(plan.workspace),
            memory_mb=plan.limits.memory_mb,
            address_space_mb=plan.limits.address_space_mb,
            max_processes=plan.limits.max_processes + self._sandbox.num_processes,
            disk_mb=plan.limits.disk_mb,
            cpu_s=plan.limits.cpu_s,
            depth=self._sandbox.num_processes,
        )

    async def stop(self, key: str, action: StopHarness, tell: Tell) -> None:
        await self._harnesses.halt(action.execution, force=action.force)

    async def score(self, key: str, action: ScoreWorkspace, tell: Tell) -> Scored:
        begin = action.begin
        return await self._scorer.score(begin.split, begin.task, self._workspaces.path(begin.execution), lambda: tell(None))

    async def remove(self, key: str, action: RemoveWorkspace, tell: Tell) -> None:
        await self._harnesses.gone(action.execution)
        await asyncio.to_thread(self._workspaces.remove, action.execution)

    async def sweep(self, key: str, action: SweepWorkspaces, tell: Tell) -> None:
        await asyncio.to_thread(self._workspaces.sweep)

    async def measure(self, key: str, action: MeasureUsage, tell: Tell) -> float:
        used = resource.getrusage(resource.RUSAGE_SELF)
        return used.ru_utime + used.ru_stime
