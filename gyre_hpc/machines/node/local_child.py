"""One child as the node machine sees it."""

from dataclasses import dataclass

from gyre_hpc.protocol.supervision import ChildEnd, Wanted


@dataclass(kw_only=True, slots=True)
class LocalChild:
    """Mutable; owned by the machine. One incarnation of a child (of a cell over several nodes: the part that is here)."""

    process: str
    incarnation: int
    wanted: Wanted = Wanted.run
    """The strongest wish so far; it only grows: run, terminate, kill."""
    is_signalled: bool = False
    """SIGTERM was asked for."""
    stacks_asked: int = 0
    """How often they were asked for."""
    is_writing_stacks: bool = False
    """It is told to end after them."""
    is_killing: bool = False
    """A kill is under way."""
    end: ChildEnd | None = None
    """Set once it is gone; told until the orders name it no more."""

    @property
    def is_running(self) -> bool:
        return self.end is None

    def key(self, verb: str) -> str:
        """Name of an action."""
        return f"{verb}/{self.process}/{self.incarnation}"
