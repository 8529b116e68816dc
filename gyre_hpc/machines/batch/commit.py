"""The commit of one batch: freeze -> manifests -> reduce into scratch -> intent on disk -> apply -> published.

(a) holders freeze and send manifests; (b) every member reduces into scratch; (c) only manifests that are the batch exactly
once lead to a reduce, and only the core's success to an apply; a failure forms the next generation, without the dead;
(d) the commit is the core's alone; (e) apply is idempotent by (update, manifest_hash). See DESIGN §7.
"""

import hashlib
from collections.abc import Iterable

from gyre_hpc.machines.batch.fleet import Fleet
from gyre_hpc.machines.batch.open_batch import OpenBatch
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.to_batch import CommitPhase, CommitReport
from gyre_hpc.protocol.to_cell import CommitOrder


class Commit:
    """One generation's try to consolidate the open batch."""

    def __init__(self, *, generation: int, members: tuple[str, ...], nonce: str, started_at: float) -> None:
        self.generation, self.members, self.nonce, self.started_at = generation, members, nonce, started_at
        self.address: str | None = None
        self.reducing = False
        self.intent = ""
        """Manifest hash once the scratch sum stands; empty before."""
        self.intent_is_durable = False

    def order(self, cell: str) -> CommitOrder | None:
        """What `cell` should know of this commit; None for a cell that is no member."""
        if cell not in self.members:
            return None
        return CommitOrder(self.generation, self.members, self.address, self.nonce, self.reducing)

    def reports(self, fleet: Fleet) -> dict[str, CommitReport]:
        """Members' reports of this generation."""
        found = {}
        for name in self.members:
            report = fleet.cells[name].report
            if report is not None and report.commit is not None and report.commit.generation == self.generation:
                found[name] = report.commit
        return found

    def failure(self, fleet: Fleet) -> str:
        """Why this generation cannot succeed any more; empty while it can."""
        for name in self.members:
            if not fleet.cells[name].is_usable:
                return f"{name} is lost"
        for name, report in self.reports(fleet).items():
            if report.phase is CommitPhase.failed:
                return f"{name}: {report.reason}"
        return ""

    def advance(self, fleet: Fleet, batch: OpenBatch) -> str:
        """Move on as far as the reports allow. Returns `wait`, `reduced`, or `mismatch`."""
        reports = self.reports(fleet)
        if not self.reducing:
            if len(reports) < len(self.members):
                return "wait"
            core = reports[self.members[0]]
            if len(self.members) > 1 and core.address is None:
                return "wait"
            if not batch.ledger.covers(report.manifest for report in reports.values()):
                return "mismatch"
            self.address, self.reducing = core.address, True
            return "wait"
        core_report = reports.get(self.members[0])
        if core_report is not None and core_report.phase is CommitPhase.reduced:
            return "reduced"
        return "wait"


def manifest_hash(version: Version, executions: Iterable[str], ids: Iterable[str]) -> str:
    """Identity of an update: the version it leads to, the executions it consumes, its micro-batches. Ids alone are not enough:
    another lineage, or a controller that was restarted, gives the same ids to other micro-batches."""
    digest = hashlib.blake2b(str(version).encode(), digest_size=16)
    for part in (executions, ids):
        digest.update(b"\0")
        for name in sorted(part):
            digest.update(b"\0" + name.encode())
    return digest.hexdigest()


def nonce_of(secret: str, generation: int) -> str:
    """What members of a generation show each other; not to be guessed without the run's secret."""
    return hashlib.blake2b(f"{secret}/{generation}".encode(), digest_size=16).hexdigest()
