"""Assembles the runner: machine, log, deeds, host."""

from gyre_hpc.config.place import scratch_folder
from gyre_hpc.config.schema import Config
from gyre_hpc.harnesses import create_harness
from gyre_hpc.machines.base import Restarted
from gyre_hpc.machines.execution import Record, RunnerMachine, RunnerSettings
from gyre_hpc.runner.deeds import Deeds
from gyre_hpc.runner.harnesses import Harnesses
from gyre_hpc.runner.scorer import Scorer
from gyre_hpc.runner.workspaces import Workspaces
from gyre_hpc.sandboxes import create_sandbox
from gyre_hpc.shell.arguments import Birth
from gyre_hpc.shell.host import Host, NoteSink
from gyre_hpc.shell.lifetime import end_with_parent
from gyre_hpc.shell.log import MachineLog, read_log
from gyre_hpc.suites import create_suite


def settings_of(config: Config, runner: str, incarnation: int) -> RunnerSettings:
    cluster = config.cluster
    return RunnerSettings(
        runner=runner,
        incarnation=incarnation,
        gateways=tuple(f"gateway-{index}" for index in range(cluster.gateways)),
        capacity=cluster.runner_capacity,
        cpus=cluster.runner_cpus,
        memory_mb=cluster.runner_memory_mb,
        execution_cpus=config.suite.cpus,
        execution_memory_mb=config.suite.memory_mb,
    )


async def run(birth: Birth, note: NoteSink) -> str:
    """Run until told to end; return why."""
    config, folder = birth.config, birth.folder
    records, whole = read_log(folder.machine_log(birth.name, birth.attempt), Record)
    harnesses = Harnesses()
    scorer = Scorer(folder.root)
    deeds = Deeds(
        config=config,
        run_token=birth.run_token,
        suite=create_suite(config.suite, config.seed),
        harness=create_harness(config.harness.name),
        sandbox=create_sandbox(config.sandbox.kind),
        workspaces=Workspaces(
            scratch_folder(config, folder, birth.node) / f"{birth.name}-{birth.attempt}", keep=config.debug.keep_workspaces
        ),
        harnesses=harnesses,
        scorer=scorer,
    )
    host = Host(
        name=birth.name,
        attempt=birth.attempt,
        run_token=birth.run_token,
        addresses=birth.addresses,
        actions=deeds.actions(),
        note=note,
        machine_log=MachineLog(folder.machine_log(birth.name, birth.attempt), whole),
        record_to=folder.inputs(birth.name, birth.attempt) if config.debug.record_inputs else None,
        others_cpu_s=lambda: harnesses.cpu_s,
    )
    end_with_parent(host.end)
    url = await host.bind(config.network.interface)
    await harnesses.start(died=host.end)
    host.run(RunnerMachine(settings_of(config, birth.name, birth.incarnation), birth.register(url)), Restarted(tuple(records)))
    reason = await host.ended
    await host.close()
    await harnesses.close()
    await scorer.close()
    return reason
