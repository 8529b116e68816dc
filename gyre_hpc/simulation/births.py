"""From a process name to its machine, as the shells' mains do it. Numbers are small so that seeds are short."""

from typing import TYPE_CHECKING

from gyre_hpc.config.schema import SchedulerConfig
from gyre_hpc.machines.base import Machine
from gyre_hpc.machines.batch import BatchMachine, BatchSettings
from gyre_hpc.machines.batch.satellites import SatellitePace
from gyre_hpc.machines.call import GatewayMachine, GatewaySettings
from gyre_hpc.machines.cell import CellMachine, CellSettings
from gyre_hpc.machines.execution import RunnerMachine, RunnerSettings
from gyre_hpc.machines.member import Member
from gyre_hpc.machines.membership import Membership
from gyre_hpc.machines.supervision import SupervisionMachine, SupervisionSettings
from gyre_hpc.protocol.node_map import FIRST
from gyre_hpc.protocol.supervision import Register
from gyre_hpc.simulation.cell_world import CellWorld
from gyre_hpc.simulation.controller_world import ControllerWorld
from gyre_hpc.simulation.gateway_world import GatewayWorld
from gyre_hpc.simulation.nodes import node_machine, nodes_of, places_of, runners_of
from gyre_hpc.simulation.process import Process
from gyre_hpc.simulation.ranks import LIMIT
from gyre_hpc.simulation.runner_world import RunnerWorld
from gyre_hpc.simulation.scenario import Scenario
from gyre_hpc.simulation.scripted_world import ScriptedWorld
from gyre_hpc.simulation.supervisor_world import SupervisorWorld
from gyre_hpc.simulation.tokens import STOP

if TYPE_CHECKING:
    from gyre_hpc.simulation.run import Simulation

World = CellWorld | ControllerWorld | GatewayWorld | RunnerWorld | ScriptedWorld | SupervisorWorld
SUPERVISOR = FIRST
SOFT_S, HARD_S = 15.0, 22.0


def cells_of(scenario: Scenario) -> tuple[str, ...]:
    return tuple(f"cell-{index}" for index in range(scenario.cells))


def gateways_of(scenario: Scenario) -> tuple[str, ...]:
    return tuple(f"gateway-{index}" for index in range(scenario.gateways))


def bear(sim: "Simulation", process: Process) -> None:
    """Give the process its machine and its world."""
    scenario = sim.scenario
    register = Register(process.name, process.incarnation, process.url, 1)
    world: World
    machine: Machine
    match process.kind:
        case "supervisor" if process.name != SUPERVISOR:
            world, machine = SupervisorWorld(process), node_machine(process, sim.nodes.joined.get(process.name))
        case "supervisor":
            world, machine = SupervisorWorld(process), SupervisionMachine(_supervision(scenario, process.attempt))
        case "controller":
            batch = _batch(scenario, process)
            world, machine = ControllerWorld(process), BatchMachine(batch, Membership(register), "secret")
        case "cell":
            world, machine = CellWorld(process), CellMachine(_cell(scenario, process), register)
        case "gateway":
            world, machine = GatewayWorld(process), GatewayMachine(_gateway(scenario, process, register))
        case "runner":
            world, machine = RunnerWorld(process), RunnerMachine(_runner(scenario, process), register)
        case _:
            world, machine = ScriptedWorld(process), Member(register)
    process.world, process.machine, process.handlers = world, machine, world.handlers()


def _supervision(scenario: Scenario, attempt: int) -> SupervisionSettings:
    return SupervisionSettings(
        name=SUPERVISOR,
        attempt=attempt,
        services=("controller", *gateways_of(scenario), *runners_of(scenario)),
        cells=cells_of(scenario),
        extras=("scripted-0",) if scenario.warm else (),
        places=places_of(scenario),
        hosts={name: f"host-of-{name}" for name in nodes_of(scenario)},
        node_silence_ticks=4,
        start_deadline_s=10.0,
        cell_start_deadline_s=10.0,
        tick_s=3.0,
        silent_ticks=4,
        grace_s=3.0,
    )


def scheduler_of(scenario: Scenario) -> SchedulerConfig:
    return SchedulerConfig(
        mode=scenario.mode,
        staleness=scenario.staleness,
        max_staleness=scenario.max_staleness,
        lead_factor=1.0,
        lead_floor_s=0.0,
        dwell_s=0.5,
        theta0=0.6,
        concurrency_half=4.0,
    )


FRUITLESS, MOST_EMPTY = 12, 5
"""Hardly more than one batch: bad luck of any kind that faults bring must not look like a run that trains on nothing."""


def _batch(scenario: Scenario, process: Process) -> BatchSettings:
    cells = cells_of(scenario)
    return BatchSettings(
        cells=cells,
        gateways=gateways_of(scenario),
        runners=runners_of(scenario),
        core=cells[0],
        controller_url=process.url,
        attempt=process.attempt,
        incarnation=process.incarnation,
        updates=scenario.updates,
        groups_per_batch=scenario.groups_per_batch,
        group_size=scenario.group_size,
        scheduler=scheduler_of(scenario),
        eval_tasks=scenario.evals,
        warm_executions=scenario.warm,
        warm_epochs=1 if scenario.warm else 0,
        soft_deadline_s=SOFT_S,
        hard_deadline_s=HARD_S,
        table_lease_s=5.0,
        resend_s=1.0,
        tick_s=1.0,
        status_s=4.0,
        silence_s=7.0,
        start_deadline_s=9.0,
        commit_deadline_s=8.0,
        switch_deadline_s=12.0,
        lease_deadline_s=12.0,
        progress_deadline_s=240.0,
        train_tokens_per_s=150.0,
        checkpoint_before_publish=scenario.checkpoint_before_publish,
        pairs=scenario.pair_names,
        kv_budget_s=0.0 if scenario.kv == "none" else 0.5,
        fruitless_window=FRUITLESS,
        most_empty_batches=MOST_EMPTY,
        satellites=scenario.satellites,
        satellite_pace=SatellitePace(patience_s=2.0, calm_s=3.0, ask_every_s=1.0),
    )


def _cell(scenario: Scenario, process: Process) -> CellSettings:
    return CellSettings(
        name=process.name,
        incarnation=process.incarnation,
        ranks=scenario.ranks,
        memory_limit=LIMIT,
        prefill_tokens_per_s=60.0,
        move_tokens_per_s=400.0,
        engine_url=process.url,
        snapshot_url=process.url,
        heartbeat_s=3.0,
        core_heartbeat_s=1.0,
        checkpoint_before_publish=scenario.checkpoint_before_publish,
        checkpoint_every=scenario.checkpoint_every,
        pull_deadline_s=4.0,
        fetch_deadline_s=4.0,
        hand_in_deadline_s=6.0,
        reduce_deadline_s=6.0,
    )


def _gateway(scenario: Scenario, process: Process, register: Register) -> GatewaySettings:
    return GatewaySettings(
        register=register,
        clock_offset_s=1e9,
        stop_ids=(STOP,),
        run_seed=scenario.seed,
        max_context=400,
        max_output_tokens=20,
        progress_tokens=8,
        progress_s=0.5,
        gone_s=3.0,
        abandon_s=2.0,
        keepalive_s=4.0,
        call_deadline_s=6.0,
        hold_s=2.0,
        unread_s=6.0,
        max_calls=scenario.max_calls,
        max_tokens_per_execution=scenario.max_tokens,
        report_s=4.0,
    )


def _runner(scenario: Scenario, process: Process) -> RunnerSettings:
    return RunnerSettings(
        runner=process.name,
        incarnation=process.incarnation,
        gateways=gateways_of(scenario),
        capacity=scenario.capacity,
        cpus=100.0,
        memory_mb=1e6,
        execution_cpus=1.0,
        execution_memory_mb=1.0,
        grace_s=2.0,
        score_s=5.0,
        report_s=4.0,
    )
