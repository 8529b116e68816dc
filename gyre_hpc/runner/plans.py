"""How the harness of an execution is started: its own command line, and what the sandbox around it shows and allows."""

from urllib.parse import urlsplit

from gyre_hpc.config.place import cache_folder
from gyre_hpc.config.schema import Config
from gyre_hpc.harnesses.base import Harness, Launch, Start
from gyre_hpc.harnesses.options import options_of
from gyre_hpc.harnesses.place import installed_folder
from gyre_hpc.protocol.identity import address
from gyre_hpc.protocol.to_runner import Begin
from gyre_hpc.protocol.tokens import execution_token
from gyre_hpc.runner.workspaces import Workspaces
from gyre_hpc.sandboxes import Limits, Plan, Sandbox
from gyre_hpc.suites.base import Suite


class Plans:
    """Those of one runner. Makes nothing and starts nothing."""

    def __init__(self, *, config: Config, run_token: str, suite: Suite, harness: Harness, sandbox: Sandbox, workspaces: Workspaces) -> None:
        self._config, self._run_token = config, run_token
        self._suite, self._harness, self._sandbox, self._workspaces = suite, harness, sandbox, workspaces
        self._installed = installed_folder(cache_folder(config), harness, harness.version_of(options_of(config)))

    def launch(self, begin: Begin, gateway: str) -> Launch:
        """In paths as the harness sees them. gateway: base URL of its shard."""
        own = address(begin.execution, begin.life)
        return self._harness.launch(
            Start(
                gateway_url=f"{gateway}/e/{own}",
                api_key=execution_token(self._run_token, own),
                instruction=self._suite.task(begin.split, begin.task).instruction,
                workspace=self._sandbox.inside(self._workspaces.path(begin.execution)),
                home=self._sandbox.home_inside(self._workspaces.home(begin.execution)),
                installed=self._installed,
                options=options_of(self._config),
            )
        )

    def plan(self, begin: Begin, gateway: str, launch: Launch) -> Plan:
        """For the sandbox."""
        url = urlsplit(gateway)
        return Plan(
            argv=launch.argv,
            workspace=self._workspaces.path(begin.execution),
            home=self._workspaces.home(begin.execution),
            environment=launch.environment,
            readable=launch.readable,
            gateway_host=url.hostname or "",
            gateway_port=url.port or 0,
            limits=self._limits(),
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
