"""The actions of the execution machine on real folders and processes. Translation only."""

import asyncio
import resource
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from gyre_hpc.config.place import cache_folder
from gyre_hpc.config.schema import Config
from gyre_hpc.harnesses.base import Harness, Launch, Start
from gyre_hpc.harnesses.options import options_of
from gyre_hpc.harnesses.place import installed_folder
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
from gyre_hpc.protocol.identity import address
from gyre_hpc.protocol.tokens import execution_token
from gyre_hpc.runner.harnesses import Harnesses
from gyre_hpc.runner.scorer import Scorer
from gyre_hpc.runner.warden.wire import Run
from gyre_hpc.runner.workspaces import Workspaces
from gyre_hpc.sandboxes import Limits, Plan, Sandbox
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
        self._config, self._run_token = config, run_token
        self._suite, self._harness, self._sandbox = suite, harness, sandbox
        self._workspaces, self._harnesses, self._scorer = workspaces, harnesses, scorer
        self._installed = installed_folder(cache_folder(config), harness, harness.version_of(options_of(config)))

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
        launch = self.launch(action)
        await asyncio.to_thread(self._workspaces.furnish, action.begin.execution, launch.files)
        ended = await self._harnesses.run(self.request(action, launch))
        finished = ended.code in self._harness.finished_codes and not ended.limit
        return HarnessEnd(ended.code, ended.started, finished, ended.limit, ended.cpu_s, ended.tail)

    def launch(self, action: RunHarness) -> Launch:
        """How the harness is started, in paths as it sees them."""
        begin = action.begin
        own = address(begin.execution, begin.life)
        return self._harness.launch(
            Start(
                gateway_url=f"{action.gateway}/e/{own}",
                api_key=execution_token(self._run_token, own),
                instruction=self._suite.task(begin.split, begin.task).instruction,
                workspace=self._sandbox.inside(self._workspaces.path(begin.execution)),
                home=self._sandbox.home_inside(self._workspaces.home(begin.execution)),
                installed=self._installed,
                options=options_of(self._config),
            )
        )

    def request(self, action: RunHarness, launch: Launch) -> Run:
        """What the warden is to run: the harness's own command line inside the sandbox's."""
        begin = action.begin
        workspace = self._workspaces.path(begin.execution)
        gateway = urlsplit(action.gateway)
        plan = Plan(
            argv=launch.argv,
            workspace=workspace,
            home=self._workspaces.home(begin.execution),
            environment=launch.environment,
            readable=launch.readable,
            gateway_host=gateway.hostname or "",
            gateway_port=gateway.port or 0,
            limits=self._limits(),
        )
        return Run(
            id=begin.execution,
            argv=self._sandbox.wrap(plan),
            environment=plan.environment,
            folder=str(workspace),
            memory_mb=plan.limits.memory_mb,
            address_space_mb=plan.limits.address_space_mb,
            max_processes=plan.limits.max_processes + self._sandbox.num_processes,
            disk_mb=plan.limits.disk_mb,
            cpu_s=plan.limits.cpu_s,
            depth=self._sandbox.num_processes,
        )

    def _limits(self) -> Limits:
        told = self._config.sandbox
        return Limits(
            memory_mb=told.memory_mb,
            address_space_mb=0 if self._harness.reserves_address_space else told.memory_mb,
            max_processes=told.max_processes,
            disk_mb=told.disk_mb,
            cpu_s=told.cpu_s,
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
