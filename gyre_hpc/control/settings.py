"""BatchSettings from the composed configuration."""

from gyre_hpc.config.cluster_schema import SatellitesAt
from gyre_hpc.config.deadlines import cell_start_s, no_progress_s, switch_step_s
from gyre_hpc.config.pairs import pairs_of
from gyre_hpc.config.schema import Config, EngineKind
from gyre_hpc.machines.batch.settings import BatchSettings


def batch_settings(
    config: Config, *, controller_url: str, attempt: int, incarnation: int, runners: tuple[str, ...] = ("runner-0",)
) -> BatchSettings:
    """What the batch machine is told of the configuration, and of the map of nodes."""
    cells = tuple(f"cell-{index}" for index in range(config.cluster.cells))
    return BatchSettings(
        cells=cells,
        gateways=tuple(f"gateway-{index}" for index in range(config.cluster.gateways)),
        runners=runners,
        core=cells[0],
        pairs=pairs_of(config),
        controller_url=controller_url,
        attempt=attempt,
        incarnation=incarnation,
        updates=config.algo.updates,
        groups_per_batch=config.algo.groups_per_batch,
        group_size=config.algo.group_size,
        scheduler=config.scheduler,
        eval_tasks=config.evaluation.tasks,
        eval_before=config.evaluation.before,
        eval_after=config.evaluation.after,
        warm_executions=config.warm_start.executions,
        warm_epochs=config.warm_start.epochs,
        soft_deadline_s=config.suite.soft_deadline_s,
        hard_deadline_s=config.suite.hard_deadline_s,
        replays=config.replay.enabled,
        max_lives=config.replay.max_lives,
        cell_capacity=config.engine.max_batch,
        table_lease_s=config.gateway.table_lease_s,
        start_deadline_s=cell_start_s(config),
        switch_deadline_s=2.5 * switch_step_s(config),
        commit_deadline_s=config.transport.deadline_s,
        kv_budget_s=config.transport.kv_budget_s if config.transport.kv != "none" else 0.0,
        progress_deadline_s=no_progress_s(config),
        checkpoint_before_publish=config.checkpoint.before_publish,
        checkpoints_kept=config.checkpoint.keep,
        satellites=config.launch.satellites if config.launch.satellites_at is SatellitesAt.run else 0,
        fruitless_window=config.suite.fruitless_window,
        # Timed engines make tokens up.
        malformed_window=0 if config.engine.kind is EngineKind.timed else config.gateway.malformed_window,
    )
