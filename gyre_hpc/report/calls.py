"""Model calls of a run, read from its journal: a row each. Reads whole records only, so a live run can be looked at too."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from gyre_hpc.chat import create_chat_format
from gyre_hpc.chat.base import ChatFormat
from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.stored import open_folder
from gyre_hpc.errors import NoRun, UserError
from gyre_hpc.protocol.journal import CallBegin, CallEnd, CallProgress, Delivered, ExecutionEnd, Record, Replayed, TakenUp, execution_of
from gyre_hpc.shell.journal_files import records_in, written_contents
from gyre_hpc.trajectory.lives import counting, last_life
from gyre_hpc.trajectory.segment import DamagedSegment, attempt_of


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One call in a line."""

    call: str
    role: str
    thread: str
    protocol: str
    branch: str
    """Why it does not simply go on from its parent; empty when it does."""
    parent: str
    prompt: int
    """Tokens of its whole context."""
    suffix: int
    """Those that were rendered for it."""
    output: int
    cells: tuple[str, ...]
    finish: str
    """Empty while it runs."""
    delivered: bool
    """In the last life of its execution."""
    trained: bool
    """Delivered, and the engine saw what is recorded."""
    replayed: int
    """Times that a later life asked for it and got what was recorded."""
    malformed: int


@dataclass(slots=True, eq=False)
class Pieces:
    """Records of one call."""

    begin: CallBegin
    num_prompt: int
    """Tokens of its whole context."""
    progress: list[CallProgress] = field(default_factory=list)
    end: CallEnd | None = None
    delivered: bool = False
    replayed: int = 0

    @property
    def output(self) -> bytes:
        """Packed output ids; what a restarted shard wrote twice counts once."""
        output = bytearray()
        for piece in self.progress:
            if 4 * piece.start <= len(output):
                output += piece.output_ids[len(output) - 4 * piece.start :]
        return bytes(output)

    @property
    def num_output(self) -> int:
        return max((piece.start + len(piece.output_ids) // 4 for piece in self.progress), default=0)

    @property
    def row(self) -> Row:
        begin, end = self.begin, self.end
        cells = end.cells if end is not None else tuple(dict.fromkeys(piece.cell for piece in self.progress))
        return Row(
            call=begin.call,
            role=begin.role,
            thread=begin.thread,
            protocol=begin.protocol,
            branch=begin.branch,
            parent=begin.parent or "",
            prompt=self.num_prompt,
            suffix=len(begin.suffix_ids) // 4,
            output=self.num_output,
            cells=cells,
            finish=end.finish if end is not None else "",
            delivered=self.delivered,
            trained=self.delivered and end is not None and not end.engine_digest,
            malformed=end.malformed if end is not None else 0,
            replayed=self.replayed,
        )


def read_calls(run: str | Path, *, execution: str = "", call: str = "") -> dict[str, Pieces]:
    """Calls by id, in order of their begin, shard after shard. Raises UserError for no run folder, a damaged journal, an unknown call."""
    folder = RunFolder(Path(run).expanduser().resolve())
    if not folder.config.exists():  # a damaged one hides no journal
        raise NoRun("RUN", str(run))
    calls: dict[str, Pieces] = {}
    for by_attempt in _executions(folder.journal, execution).values():
        records = counting(by_attempt)
        life = last_life(records)
        for record in records:
            if not isinstance(record, ExecutionEnd | TakenUp):
                _take(calls, record, life)
    if execution and not calls and not call:
        raise UserError("--execution", execution, "the journal has no call of it; `gyre calls RUN` shows all")
    if call and call not in calls:
        raise UserError(
            "--call",
            call,
            f"the journal has no such call; `gyre calls RUN{f' --execution {execution}' if calls and execution else ''}` shows those it has",
        )
    return calls


def reader_of(run: str | Path) -> ChatFormat | None:
    """The run's chat format, to show tokens as text; None where its files are not at hand."""
    _, config = open_folder(run)
    try:
        return create_chat_format(config.model)
    except UserError:
        return None


def table(rows: Sequence[Row]) -> str:
    """A text table; the last line adds up."""
    lines = [
        ["call", "role", "thread", "branch", "parent", "prompt", "new", "output", "cells", "finish", "delivered", "replayed", "malformed"]
    ]
    for row in rows:
        delivered = "yes" if row.trained else "untrained" if row.delivered else "no"
        numbers = [str(row.prompt), str(row.suffix), str(row.output)]
        lines.append(
            [row.call, row.role, row.thread, row.branch, row.parent.rpartition("/")[2], *numbers, ",".join(row.cells), row.finish or "runs",
             delivered, str(row.replayed or ""), str(row.malformed or "")]
        )  # fmt: skip
    widths = [max(len(line[place]) for line in lines) for place in range(len(lines[0]))]
    text = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    roots = sum(row.branch == "root" for row in rows)
    branches = sum(bool(row.branch) for row in rows) - roots
    total = f"{len(rows)} calls, {sum(row.output for row in rows)} tokens, {roots} conversations begun, {branches} branches"
    return "\n".join([*text, total])


def _executions(journal: Path, execution: str) -> dict[str, dict[int, list[Record]]]:
    """Execution -> attempt -> its records; of all, or of one."""
    found: dict[str, dict[int, list[Record]]] = {}
    for attempt, record in _records(journal, execution):
        found.setdefault(execution_of(record), {}).setdefault(attempt, []).append(record)
    return found


def _records(journal: Path, execution: str) -> Iterator[tuple[int, Record]]:
    """(attempt, record); of one execution without reading the finished segments that do not hold it."""
    for path in sorted(journal.glob("*.gyj")):
        contents = written_contents(path) if execution else None
        if contents is not None and execution not in contents.marks:
            continue
        try:
            for record in records_in(path, execution.__eq__ if execution else None):
                yield attempt_of(path), record
        except DamagedSegment as error:
            raise UserError("RUN", str(path), str(error)) from error


def _take(calls: dict[str, Pieces], record: Record, life: int) -> None:
    assert not isinstance(record, ExecutionEnd | TakenUp)
    pieces = calls.get(record.call)
    if isinstance(record, CallBegin):
        # The parent's answer is complete: this call was asked with it.
        parent = calls.get(record.parent) if record.parent is not None else None
        before = parent.num_prompt + parent.num_output if parent is not None else 0
        calls.setdefault(record.call, Pieces(record, before + len(record.suffix_ids) // 4))
    elif pieces is None:
        return
    elif isinstance(record, CallProgress):
        pieces.progress.append(record)
    elif isinstance(record, CallEnd):
        pieces.end = record
    elif isinstance(record, Delivered):
        pieces.delivered |= record.life == life
    elif isinstance(record, Replayed):
        pieces.replayed += 1


def texts(ids: Iterable[int], chat: ChatFormat | None) -> str:
    """Tokens as text, or as numbers where nothing can read them."""
    listed = list(ids)
    return chat.tokenizer.decode(listed) if chat is not None else " ".join(map(str, listed))
