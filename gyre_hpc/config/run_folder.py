"""Names of everything in a run folder (docs/formats.md describes each file). One writer per file, always."""

import os
from pathlib import Path


class RunFolder:
    """Paths below one run folder; creates nothing."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)

    @property
    def config(self) -> Path:
        """The composed configuration, YAML; written once by launch."""
        return self.root / "config.yaml"

    @property
    def is_run(self) -> bool:
        """A run was prepared here; a config.yaml alone is anybody's."""
        return os.path.isfile(self.config) and any(os.path.isdir(self.root / name) for name in ("state", "events", "attempts"))

    @property
    def attempts(self) -> Path:
        """attempts/<n>/ claimed by mkdir; the highest one is the live one."""
        return self.root / "attempts"

    def start(self, attempt: int) -> Path:
        """attempts/<n>/start.json, mode 0600: which job started it and where its supervisor-0 listens; written by that supervisor."""
        return self.attempts / str(attempt) / "start.json"

    def config_of(self, attempt: int) -> Path:
        """attempts/<n>/config.yaml: what that attempt was told; written by launch. Attempts of format 1 have none."""
        return self.attempts / str(attempt) / "config.yaml"

    def versions(self, attempt: int) -> Path:
        """attempts/<n>/versions.json: what that attempt ran with, and what it was told anew; written by launch."""
        return self.attempts / str(attempt) / "versions.json"

    def node_map(self, attempt: int) -> Path:
        """attempts/<n>/nodes.json: the nodes of the allocation and which cell lies where; written by launch before the supervisors start."""
        return self.attempts / str(attempt) / "nodes.json"

    @property
    def preflight(self) -> Path:
        """preflight/<job>-<restarts>.json: what was found before that start; beside it, while the nodes meet, a folder of that name."""
        return self.root / "preflight"

    @property
    def commands(self) -> Path:
        """commands/<id>.json: what people order through the folder alone; commands/<id>.ack.json: the answer of supervisor-0."""
        return self.root / "commands"

    def command(self, id: str) -> Path:
        """commands/<id>.json: one wish, written whole by who has it."""
        return self.commands / f"{id}.json"

    def answer(self, id: str) -> Path:
        """commands/<id>.ack.json"""
        return self.commands / f"{id}.ack.json"

    def alive(self, attempt: int) -> Path:
        """attempts/<n>/alive: empty; its time is the newest sign of life of the attempt's supervisor-0, which touches it."""
        return self.attempts / str(attempt) / "alive"

    @property
    def jobs(self) -> Path:
        """jobs/<job>.json: one file for each job submitted for this run, written once by who submitted it."""
        return self.root / "jobs"

    @property
    def code(self) -> Path:
        """Copy of the code that the run runs from (launch.snapshot)."""
        return self.root / "code"

    @property
    def token(self) -> Path:
        """Run token, mode 0600; written once by launch."""
        return self.root / "state" / "token"

    @property
    def endpoints(self) -> Path:
        """Mirror of the supervisor's directory, mode 0600, JSON."""
        return self.root / "state" / "endpoints.json"

    def machine_log(self, process: str, attempt: int) -> Path:
        """What the machine of `process` persisted in `attempt`."""
        return self.root / "state" / f"{process}-{attempt}.log"

    def inputs(self, process: str, attempt: int) -> Path:
        """Recorded inputs and effects (debug.record_inputs)."""
        return self.root / "state" / f"{process}-{attempt}.inputs"

    def events(self, process: str, attempt: int) -> Path:
        """Events of one process, JSON lines."""
        return self.root / "events" / f"{process}-{attempt}.jsonl"

    @property
    def events_folder(self) -> Path:
        return self.root / "events"

    @property
    def journal(self) -> Path:
        """journal/<shard>-<attempt>-<segment>.gyj"""
        return self.root / "journal"

    @property
    def checkpoints(self) -> Path:
        """checkpoints/<lineage>.<step>/ with model.safetensors, config.json, optimizer.safetensors, state.json, DONE (last)."""
        return self.root / "checkpoints"

    @property
    def tensorboard(self) -> Path:
        return self.root / "tensorboard"

    def log(self, process: str) -> Path:
        """stdout and stderr of one process."""
        return self.root / "logs" / f"{process}.log"

    def stacks(self, process: str, attempt: int, incarnation: int, rank: int | None = None, agent: int | None = None) -> Path:
        """Python stacks of one life of a process, written when it is asked for them (shell/stacks.py). rank: of a cell's process; agent:
        which part of the cell an agent holds."""
        part = f"rank-{rank}." if rank is not None else f"agent-{agent}." if agent is not None else ""
        return self.root / "logs" / f"{process}-{attempt}-{incarnation}.{part}stacks"

    @property
    def status(self) -> Path:
        """status.json, rewritten by rename by the controller."""
        return self.root / "status.json"

    @property
    def summary(self) -> Path:
        return self.root / "summary.json"

    @property
    def report(self) -> Path:
        return self.root / "report.html"
