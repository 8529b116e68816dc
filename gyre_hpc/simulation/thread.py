"""One line of conversation of a simulated agent, and what it asks about its stored answers."""

import enum
from collections.abc import Callable
from dataclasses import dataclass

from gyre_hpc.chat.base import Message
from gyre_hpc.machines.call.actions import Cancel, Forget, Retrieve
from gyre_hpc.simulation.gateway_world import Connection


class About(enum.Enum):
    """What a thread asks next instead of going on."""

    nothing = "nothing"
    answer = "answer"
    """A stored answer once more."""
    forget = "forget"
    """To delete one."""
    gone = "gone"
    """One that was deleted: it must not be there."""
    cancel = "cancel"
    """To give up the call that it waited for."""


@dataclass(eq=False)
class Thread:
    """One line of conversation."""

    name: str
    role: str
    messages: list[Message]
    turns_left: int
    then: Callable[[], None]
    patience: int = 2
    """How often it may still lose its patience."""
    regrets: int = 1
    """How often it may still cancel a call."""
    heard: str = ""
    number: int = 0
    """Of the newest try; words of earlier ones are late."""
    tries: int = 0
    """Of the present inquiry."""
    connection: Connection | None = None
    open: Connection | None = None
    """Of the call that it cancels."""
    children: int = 0
    stream: bool = True
    stop: tuple[str, ...] = ()
    stores: bool = False
    """It leaves its conversation with the gateway and sends what is new alone."""
    previous: str = ""
    """Answer that it goes on from."""
    instructed: bool = False
    """Its first message comes with each request."""
    logprobs: bool = False
    num_known: int = 0
    """Messages that the gateway has."""
    about: About = About.nothing
    call: str = ""
    """That `about` is about."""

    def inquire(self, about: About, call: str) -> None:
        self.about, self.call, self.tries = about, call, 0

    def inquiry(self, execution: str) -> Retrieve | Forget | Cancel | None:
        """The request; None when it goes on with its conversation."""
        match self.about:
            case About.answer | About.gone:
                return Retrieve("", execution, self.call)
            case About.forget:
                return Forget("", execution, self.call)
            case About.cancel:
                return Cancel("", execution, self.call)
        return None
