"""The reader's side of a desk: one claim, held while its blocks are read."""

import contextlib
import socket

from gyre_hpc.clock import monotonic_s
from gyre_hpc.errors import TransferFailed
from gyre_hpc.transport import kv_proof
from gyre_hpc.transport.deadline_socket import DeadlineSocket
from gyre_hpc.transport.kv_base import Ticket
from gyre_hpc.transport.kv_greeting import GREETING_S, QUIET, Answer, Claim, receive, send
from gyre_hpc.transport.kv_proof import READER, SOURCE


class Visit:
    """The reader's side: one claim, from construction until it is left as a context. Raises TransferFailed."""

    def __init__(self, address: str, ticket: Ticket, deadline_s: float) -> None:
        begin = monotonic_s()
        host, _, port = address.rpartition(":")
        try:
            self._plain = socket.create_connection((host, int(port)), deadline_s)
        except (OSError, ValueError) as error:
            raise TransferFailed(f"the source cannot be reached at {address}: {error}") from error
        self._peer = DeadlineSocket(self._plain, deadline_s - (monotonic_s() - begin))
        try:
            send(self._peer, Claim(kv_proof.shown_by(READER, ticket)))
            answer = receive(self._peer, Answer)
            if answer.refused or not kv_proof.is_right(answer.shown, SOURCE, ticket):
                raise TransferFailed(answer.refused or "the source shows a wrong proof")
        except OSError as error:
            self._plain.close()
            raise TransferFailed(f"the source at {address} does not answer: {error}") from error
        except TransferFailed:
            self._plain.close()
            raise
        self.until = min(begin + deadline_s, begin + answer.left_s)
        """When reading must have ended, on this machine's clock: counted from before the question, so never later than the source's."""

    def check(self) -> None:
        """Raises TransferFailed when reading must stop."""
        if monotonic_s() >= self.until:
            raise TransferFailed("deadline passed")
        self._plain.setblocking(False)
        try:
            raise TransferFailed("the offer was withdrawn" if self._plain.recv(1) else "the source is gone")
        except BlockingIOError:
            return
        except OSError as error:
            raise TransferFailed(f"the source is gone: {error}") from error

    def leave(self) -> None:
        """Nothing of the offer is read any more."""
        with contextlib.suppress(OSError):
            self._plain.settimeout(GREETING_S)
            self._plain.sendall(QUIET)
        self._plain.close()
