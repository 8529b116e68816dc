"""Whether a report says anything that a decision could follow from at once. Figures that change all the time (load, counters, CPU,
memory) are not of that kind: they are kept, and count at the next tick. With a thousand cells most reports say nothing else."""

from gyre_hpc.machines.batch.state import State
from gyre_hpc.protocol.to_batch import CellReport, GatewayReport, RunnerReport

Report = CellReport | GatewayReport | RunnerReport

_FIGURES = {
    CellReport: {
        "seq", "live_requests", "train_tokens_per_s", "fit_progress", "memory", "memory_after", "pids", "engine_pids", "groups_built",
        "tokens", "curve", "cpu_s", "kv", "waiting",
    },
    GatewayReport: {"seq", "live_calls", "waiting_calls", "tokens", "cpu_s"},
    RunnerReport: {"seq", "cpu_s", "harness_cpu_s"},
}  # fmt: skip
_FACTS = {kind: tuple(name for name in kind.__struct_fields__ if name not in figures) for kind, figures in _FIGURES.items()}


def has_news(state: State, report: Report) -> bool:
    """To be asked before the report is taken."""
    before = _known(state, report)
    return before is None or any(getattr(before, name) != getattr(report, name) for name in _FACTS[type(report)])


def _known(state: State, report: Report) -> Report | None:
    """The newest of its sender so far."""
    match report:
        case CellReport():
            cell = state.fleet.cells.get(report.cell)
            return cell.report if cell is not None else None
        case GatewayReport():
            return state.gateways.get(report.shard)
        case RunnerReport():
            # Of one that is gone nothing counts any more.
            return state.runners.get(report.runner) if report.runner not in state.lost_runners else report
