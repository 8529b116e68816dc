"""One line of conversation of a simulated agent, and what it asks about its stored answers."""

import enum
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from gyre_hpc.chat.base import Message
from gyre_hpc.machines.call.actions import Arrived, Cancel, Forget, Retrieve
from gyre_hpc.machines.call.turns import digest, digest_turns, likeness_of
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


_CLOCK = " by the clock of life "


def dated(text: str, life: int) -> str:
    """What a later life says otherwise without meaning it."""
    return f"{text}{_CLOCK}{life}" if life else text


def canonical(text: str) -> str:
    return text.partition(_CLOCK)[0]


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

    @property
    def echo(self) -> tuple[bytes, ...]:
        """What it wants back with a stored answer."""
        return (b"short", b"long" * 99) if self.instructed else ()

    def request(self, execution: str, life: int = 0) -> Arrived | Retrieve | Forget | Cancel:
        """Its next one."""
        inquiry = self.inquiry(execution)
        if inquiry is not None:
            return msgspec.structs.replace(inquiry, life=life)
        first = 1 if self.instructed else 0
        messages = self.messages[:first] + self.messages[max(first, self.num_known) :]
        turns = digest_turns(messages, canonical)
        asked = f"{self.name}\n{self.previous}\n{self.stop}"
        identity = digest(execution.encode(), asked.encode(), *(turn.digest for turn in turns))
        return Arrived(
            conn="",
            execution=execution,
            role=self.role,
            thread=self.name,
            request_hash=identity.hex(),
            messages=tuple(messages),
            turns=turns,
            tools_digest=b"",
            stream=self.stream,
            stop=self.stop,
            store=self.stores,
            previous=self.previous,
            instructed=self.instructed,
            logprobs=self.logprobs,
            echo=self.echo,
            likeness=likeness_of(self.role.encode(), f"{self.previous}\n{self.stop}".encode(), turns=turns),
            life=life,
        )
