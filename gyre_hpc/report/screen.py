"""The live view of one status as a rich renderable: update, pass rate, waterlevel, role of each cell, executions, rate, ETA. Pure."""

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from gyre_hpc.observability.status import CellStatus, Status, WaterlevelStatus
from gyre_hpc.report.lines import PHASES, span
from gyre_hpc.report.summary import STATES, percent

ROLE_STYLES = {"rollout": "blue", "train": "dark_orange", "lost": "red", "starting": "dim"}
NUM_WAITS = 4


def screen(status: Status, news: list[str], *, is_over: bool = False) -> RenderableType:
    """Everything at a glance; `news` are the newest lines of plain text. is_over: it is the last word of an attempt that has ended."""
    parts: list[RenderableType] = [_progress(status), _head(status, is_over), _cells(status), _work(status, is_over)]
    if status.waits and not is_over:
        parts.append(_waits(status))
    if news:
        parts.append(Text("\n".join(news), style="dim"))
    title = f"{status.experiment} · attempt {status.attempt} · {PHASES.get(status.phase, status.phase)}"
    return Panel(Group(*parts), title=Text(title), title_align="left")


def _progress(status: Status) -> RenderableType:
    # A bar does not end its line by itself; a grid row does.
    grid = Table.grid(expand=True)
    grid.add_row(ProgressBar(total=1.0, completed=status.progress))
    return grid


def _head(status: Status, is_over: bool) -> RenderableType:
    eta = "-" if status.eta_s is None else span(status.eta_s)
    rates = ", ".join(f"{percent(rate)} after {slot}" for slot, rate in status.pass_rates.items())
    words = [
        f"update [b]{status.update}/{status.updates_total}[/b]",
        f"pass rate [b]{percent(status.pass_rate)}[/b]" + (f" (held-out {rates})" if rates else ""),
        *([] if is_over else [f"[b]{status.tokens_per_s:.0f}[/b] tokens/s", f"ETA [b]{eta}[/b]"]),
    ]
    below = [*([] if is_over else _water(status.waterlevel)), *([status.message] if status.message else [])]
    return Group(Text.from_markup(" · ".join(words)), *([Text(" · ".join(below), style="dim")] if below else []))


def _water(level: WaterlevelStatus) -> list[str]:
    why = f" ({level.reason})" if level.reason else ""
    return [
        f"waterlevel {level.live} live",
        f"cells needed {level.cells_needed}",
        f"next batch {percent(level.ready)} ready",
        f"to train {level.want}{why}",
    ]


def _cells(status: Status) -> RenderableType:
    table = Table(box=None, padding=(0, 1), show_header=True, header_style="dim")
    has_servers = any(cell.engine_pids for cell in status.cells)
    for name in ("cell", "role", "state", "version", "calls", "why idle", *(["processes"] if has_servers else [])):
        table.add_column(name)
    for cell in status.cells:
        table.add_row(
            f"{cell.name}{' (core)' if cell.is_core else ''}",
            Text(cell.role, style=ROLE_STYLES.get(cell.role, "")),
            Text(cell.state, style=ROLE_STYLES.get(cell.state, "yellow")),
            cell.version,
            str(cell.live),
            Text(cell.reason, style="dim"),
            *([_pids(cell)] if has_servers else []),
        )
    return table


def _pids(cell: CellStatus) -> RenderableType:
    """Of a cell whose engine is a server: who is who in `ps`."""
    server = " ".join(str(pid) for pid in cell.engine_pids) or "-"
    return Text(f"ranks {' '.join(str(pid) for pid in cell.pids)}, server {server}", style="dim")


def _work(status: Status, is_over: bool) -> RenderableType:
    executions = status.executions
    ended = ", ".join(f"{executions.get(state, 0)} {state}" for state in STATES)
    waiting = sum(gateway.waiting for gateway in status.gateways.values())
    queued = sum(runner.queued for runner in status.runners.values()) or executions.get("queued", 0)
    running = executions.get("running", 0)
    text = (
        "executions: " + (f"{running + queued} were under way" if is_over else f"{running} running, {queued} queued") + f"; ended {ended}"
    )
    if waiting and not is_over:
        text += f"; {waiting} calls wait for a cell"
    if status.batch:
        groups, of, micro_batches = (status.batch.get(name, 0) for name in ("groups", "of", "waiting"))
        text += f"\nbatch: {groups}/{of} groups, {micro_batches} micro-batches wait"
    for alarm in status.alarms:
        text += f"\nalarm: {alarm}"
    return Text(text)


def _waits(status: Status) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    for wait in sorted(status.waits, key=lambda wait: wait.deadline)[:NUM_WAITS]:
        left = wait.deadline - status.time
        style = "red" if left < 0 else "dim"
        words = ("waits", wait.owner, wait.reason, f"{span(left)} left" if left >= 0 else f"{span(-left)} too late")
        table.add_row(*[Text(word, style=style) for word in words])
    return table
