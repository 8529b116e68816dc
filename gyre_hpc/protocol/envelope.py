"""What travels: POST /messages, `Authorization: Bearer <run token>`, body = JSON of an Envelope; answer 204, 401 or 409."""

import msgspec

from gyre_hpc.protocol.people import Command
from gyre_hpc.protocol.supervision import (
    Directory,
    FinishRun,
    NodeOrders,
    NodeReport,
    Register,
    RendezvousOpen,
    RestartCell,
    SaveAnswer,
    SaveNow,
    SetAside,
    WriteStacks,
)
from gyre_hpc.protocol.to_batch import CellReport, GatewayReport, RunnerReport
from gyre_hpc.protocol.to_cell import Order
from gyre_hpc.protocol.to_gateway import Table
from gyre_hpc.protocol.to_runner import Assignment

Message = (
    Order | CellReport | GatewayReport | RunnerReport | Table | Assignment
    | Register | Directory | RestartCell | SetAside | FinishRun
    | NodeOrders | NodeReport | RendezvousOpen | Command | SaveNow | SaveAnswer | WriteStacks
)  # fmt: skip


class Envelope(msgspec.Struct, frozen=True):
    """A message with its sender and the attempt of the run it belongs to (older attempts get 409)."""

    sender: str
    attempt: int
    body: Message


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Envelope)


def encode(envelope: Envelope) -> bytes:
    """Envelope -> JSON bytes."""
    return _ENCODER.encode(envelope)


def decode(data: bytes) -> Envelope:
    """JSON bytes -> Envelope. Raises msgspec.ValidationError naming the field that is wrong."""
    return _DECODER.decode(data)
