"""A request for one answer, in any protocol: parsed, told to the machine, answered when the machine says so."""

import functools
from collections.abc import Callable

from aiohttp import web

from gyre_hpc.gateway.access import Access
from gyre_hpc.gateway.bodies import Bodies, UnreadBody
from gyre_hpc.gateway.connections import Connections
from gyre_hpc.gateway.protocols.base import ChatRequest, Protocol, RequestError
from gyre_hpc.gateway.protocols.json_body import encoded
from gyre_hpc.gateway.turn_memory import TurnMemory
from gyre_hpc.harnesses.base import Harness
from gyre_hpc.machines.base import Input, Received
from gyre_hpc.machines.call.actions import CLIENTS, Arrived, Cancel, Forget, Left, Retrieve
from gyre_hpc.machines.call.turns import digest

Tell = Callable[[Input], None]


class ModelCalls:
    """Turns HTTP requests into inputs of the machine."""

    def __init__(
        self, *, access: Access, bodies: Bodies, harness: Harness, connections: Connections, tell: Tell, replays: bool = True
    ) -> None:
        """`replays`: calls shall be found again in later lives of their executions."""
        self._access, self._bodies, self._harness = access, bodies, harness
        self._connections, self._tell = connections, tell
        self._replays = replays
        self._canonical = harness.canonical() if replays else str
        self._memory = TurnMemory(canonical=self._canonical)
        self._identities: Callable[[bytes], bytes] = functools.lru_cache(maxsize=64)(self._identity)
        """The fields of a request, tools among them, are the same in most requests of a harness."""

    async def answer(self, request: web.Request, protocol: Protocol) -> web.StreamResponse:
        """POST of a conversation."""
        try:
            execution, life = self._access.asked(request)
            asked = protocol.parse_for(execution, await self._bodies.read(request))
        except RequestError as error:
            return error_response(protocol, error)

        def arrived(conn: str) -> Arrived:
            return self._arrived(conn, execution, life, request, protocol, asked)

        return await self._wait(request, protocol, execution, asked, arrived)

    async def about_stored(
        self, request: web.Request, protocol: Protocol, asked: ChatRequest, call: str, kind: type[Retrieve | Forget | Cancel]
    ) -> web.StreamResponse:
        """A request about an answer given before. Raises RequestError when the caller may not ask."""
        execution, life = self._access.asked(request)
        return await self._wait(request, protocol, execution, asked, lambda conn: kind(conn, execution, call, life))

    async def _wait(
        self,
        request: web.Request,
        protocol: Protocol,
        execution: str,
        asked: ChatRequest,
        message: Callable[[str], Arrived | Retrieve | Forget | Cancel],
    ) -> web.StreamResponse:
        for gone in self._connections.closed(execution):
            # A retry must not overtake the news that its first connection is closed.
            self._tell(Received(CLIENTS, Left(gone.id)))
        connection = self._connections.add(execution, request, protocol, asked)
        try:
            self._tell(Received(CLIENTS, message(connection.id)))
            response: web.StreamResponse = await connection.over
            return response
        finally:
            self._connections.drop(connection)
            if not connection.over.done() or connection.over.cancelled():
                self._tell(Received(CLIENTS, Left(connection.id)))

    def forget(self, execution: str) -> None:
        """It takes no more calls."""
        self._memory.forget(execution)

    def _identity(self, identity: bytes) -> bytes:
        """In its canonical form."""
        return self._canonical(identity.decode("utf-8", "replace")).encode()

    def _arrived(self, conn: str, execution: str, life: int, request: web.Request, protocol: Protocol, asked: ChatRequest) -> Arrived:
        headers = {name.lower(): value for name, value in request.headers.items()}
        # Header bytes that are no UTF-8 arrive as lone surrogates, which no record can hold.
        thread = self._harness.thread(headers, asked.body).encode("utf-8", "replace").decode()
        messages = self._harness.clean(asked.messages)
        digested = self._memory.digested(execution, thread, messages)
        role = self._harness.role(headers, asked.body)
        return Arrived(
            conn=conn,
            execution=execution,
            role=role,
            thread=thread,
            request_hash=digest(execution.encode(), thread.encode(), asked.identity, digested.whole).hex(),
            messages=messages,
            turns=digested.turns,
            tools=asked.tools,
            tools_digest=digest(encoded(asked.tools, sort_keys=True)),
            requested=asked.requested,
            max_new_tokens=asked.max_new_tokens,
            stream=asked.stream,
            protocol=protocol.name,
            stop=asked.stop,
            logprobs=asked.logprobs,
            store=asked.store,
            previous=asked.previous,
            instructed=asked.instructed,
            echo=asked.echo,
            likeness=digest(role.encode(), self._identities(asked.identity), digested.likeness).hex() if self._replays else "",
            life=life,
        )


def error_response(protocol: Protocol, error: RequestError) -> web.Response:
    response = web.Response(body=protocol.error(error), status=error.status, content_type="application/json")
    if isinstance(error, UnreadBody):
        response.force_close()
    return response
