"""What the weights of a run were trained on, by the log of its controller: the ledger against which «nothing is trained twice» is held."""

import itertools
from collections import Counter

from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.machines.batch.records import CommitIntended, LineageBegun, Published, Record
from gyre_hpc.protocol.identity import GroupId
from gyre_hpc.shell.log import read_log
from gyre_hpc.supervisor.attempts import highest_attempt


def trained_groups(folder: RunFolder) -> Counter[GroupId]:
    """Groups of all updates that led to the newest published weights, each as often as it was trained on; more than once is a fault.

    Updates behind a checkpoint that the run went back to count no more: their weights are gone. Raises UserError for a
    damaged log.
    """
    attempts = range(1, highest_attempt(folder.attempts) + 1)
    return _trained(list(itertools.chain.from_iterable(read_log(folder.machine_log("controller", one), Record)[0] for one in attempts)))


def _trained(records: list[Record]) -> Counter[GroupId]:
    intended: dict[int, tuple[GroupId, ...]] = {}
    made: dict[int, list[GroupId]] = {}
    for record in records:
        match record:
            case CommitIntended(update=update, groups=groups):
                intended[update] = groups
            case Published(update=update) if update >= 0:
                made[update] = list(intended.get(update, ()))
            case LineageBegun(version=version, consumed=consumed):
                made = {update: groups for update, groups in made.items() if update < version.step}
                for group, update in consumed:
                    made.setdefault(update, []).append(group)
            case _:
                pass
    return Counter(itertools.chain.from_iterable(made.values()))
