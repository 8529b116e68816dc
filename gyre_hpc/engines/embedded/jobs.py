"""What is asked of the core, as plain values, and the one function that carries them out.

An engine of several ranks runs the same core on every rank: the leader sends each rank the jobs of a turn, and all of them
do the same jobs and then the same step. So whatever changes a core is a job here, and nothing else changes it.

How a result comes back. `do` returns (result, pieces). Pieces go to the clients; only the leader's are used. The result of
a plain job is the leader's own. A job of class `EachRank` is answered by every rank: its result is the list of their
results in rank order, of type `answer`, and an error on any rank is raised on the leader. So a job that may fail (a version
that the store lacks) is an EachRank that changes nothing where it fails; a plain job never fails.

A lease and a reservation are jobs of every rank, so that each one's pages are held before anybody reads or writes them.
"""

from typing import Any, ClassVar

import msgspec

from gyre_hpc.engines.answer import Piece
from gyre_hpc.engines.base import Block, Reservation
from gyre_hpc.engines.embedded.core import EngineCore
from gyre_hpc.engines.request import Request
from gyre_hpc.observability.memory import free_bytes
from gyre_hpc.protocol.identity import Version


class EachRank(msgspec.Struct, frozen=True):
    """A job whose result every rank gives."""

    answer: ClassVar[Any] = None
    may_fail_alone: ClassVar[bool] = False
    """False: where some ranks fail and others do not, the engine is broken."""


class Add(msgspec.Struct, frozen=True, tag=True):
    """Take a call. prescribed: its output ids, if a script says them."""

    number: int
    request: Request
    prescribed: list[int] | None = None


class Abort(msgspec.Struct, frozen=True, tag=True):
    """End a call with its tokens so far; nothing when it is over."""

    number: int
    reason: str
    moved_to: str = ""


class Prepare(EachRank, frozen=True, tag=True):
    """Get the weights of `version` ready for Wake or Update. KeyError: the store lacks it."""

    may_fail_alone: ClassVar[bool] = True
    version: Version


class Update(msgspec.Struct, frozen=True, tag=True):
    """Serve the version made ready, from the next step on."""

    version: Version


class Wake(EachRank, frozen=True, tag=True):
    """Allocate, and serve the version made ready. Result: (free, used) bytes."""

    answer: ClassVar[Any] = tuple[int, int]
    version: Version


class Sleep(EachRank, frozen=True, tag=True):
    """Give memory and weights back. Result: (free, used) bytes."""

    answer: ClassVar[Any] = tuple[int, int]


class Pause(msgspec.Struct, frozen=True, tag=True):
    """Stand still. retract: running calls give their KV back and wait."""

    retract: bool


class Resume(msgspec.Struct, frozen=True, tag=True):
    pass


class FlushCache(msgspec.Struct, frozen=True, tag=True):
    """Forget all prefixes. Result: False, and nothing done, while calls are live."""


class Nothing(msgspec.Struct, frozen=True, tag=True):
    """Done as soon as everything asked before it is."""


class ListConversations(msgspec.Struct, frozen=True, tag=True):
    """Result: tuple[Conversation, ...], the most recently used first."""


class Lease(EachRank, frozen=True, tag=True):
    """Hold the pages of conversations. Result: number of the lease, 0 while asleep."""

    answer: ClassVar[Any] = int
    calls: tuple[str, ...]


class Blocks(msgspec.Struct, frozen=True, tag=True):
    """Result: tuple[Block, ...], those of a lease."""

    lease: int


class Release(msgspec.Struct, frozen=True, tag=True):
    """A lease is over."""

    lease: int


class Reserve(EachRank, frozen=True, tag=True):
    """Make room for blocks of `version`. Result: Reservation. ValueError: no list of ours."""

    answer: ClassVar[Any] = Reservation
    version: Version
    blocks: tuple[Block, ...]


class Publish(msgspec.Struct, frozen=True, tag=True):
    """The pages at these places of a reservation have their content. Result: tuple[int, ...], the places published."""

    reservation: int
    arrived: tuple[int, ...]


class Cancel(msgspec.Struct, frozen=True, tag=True):
    """A reservation is over."""

    reservation: int


KvJob = ListConversations | Lease | Blocks | Release | Reserve | Publish | Cancel
Job = KvJob | Add | Abort | Prepare | Update | Wake | Sleep | Pause | Resume | FlushCache | Nothing


def do(core: EngineCore, job: Job) -> tuple[Any, list[Piece]]:
    """Carry out one job between two steps: (result, what is to be sent)."""
    core.is_starved = False
    match job:
        case Add():
            return None, core.add(job.number, job.request, job.prescribed)
        case Abort():
            return None, core.abort(job.number, job.reason, job.moved_to)
        case Update():
            return None, core.update(job.version)
        case ListConversations() | Lease() | Blocks() | Release() | Reserve() | Publish() | Cancel():
            return _do_with_pages(core, job), []
        case _:
            return _do_quietly(core, job), []


def _do_quietly(core: EngineCore, job: Job) -> Any:
    """Jobs of which no client hears."""
    match job:
        case Prepare():
            core.weights.stage(job.version)
        case Wake():
            core.wake(job.version)
            return free_bytes(), core.num_bytes()
        case Sleep():
            core.sleep()
            return free_bytes(), core.num_bytes()
        case Pause():
            core.pause(job.retract)
        case Resume():
            core.is_paused = False
        case FlushCache():
            return core.flush_cache()
    return None


def _do_with_pages(core: EngineCore, job: KvJob) -> Any:
    """An engine that sleeps has no pages: nothing is found and nothing is open."""
    if core.memory is None:
        nothing = {ListConversations: (), Blocks: (), Publish: (), Reserve: Reservation(number=0)}
        return nothing.get(type(job), 0)
    pages = core.memory.pages
    match job:
        case ListConversations():
            return pages.conversations()
        case Lease(calls=calls):
            return pages.lease(calls)
        case Blocks(lease=lease):
            return pages.blocks(lease)
        case Release(lease=lease):
            pages.release(lease)
        case Reserve(version=version, blocks=blocks):
            return pages.reserve(version, blocks) if version == core.version else Reservation(number=0)
        case Publish(reservation=reservation, arrived=arrived):
            return pages.publish(reservation, arrived, core.version)
        case Cancel(reservation=reservation):
            pages.cancel(reservation)
    return None
