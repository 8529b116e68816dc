"""What harnesses see: /e/<execution>/v1/…, a bearer token per execution, errors in the protocol's own JSON."""

from aiohttp import web

from gyre_hpc.gateway.access import Access
from gyre_hpc.gateway.bodies import Bodies
from gyre_hpc.gateway.connections import Connections
from gyre_hpc.gateway.inquiries import Inquiries
from gyre_hpc.gateway.model_calls import ModelCalls, Tell
from gyre_hpc.gateway.openapi import ServedDocument
from gyre_hpc.gateway.protocols.chat_completions import ChatCompletions
from gyre_hpc.gateway.protocols.messages import Messages
from gyre_hpc.gateway.protocols.responses import Responses
from gyre_hpc.gateway.rendering import Rendering
from gyre_hpc.gateway.stored import StoredAnswers
from gyre_hpc.harnesses.base import Harness
from gyre_hpc.shell.inbox import OPEN

PREFIX = "/e/"
BASE = PREFIX + "{execution}"


class HarnessSurface:
    """The routes of one shard."""

    def __init__(
        self,
        *,
        run_token: str,
        model: str,
        bodies: Bodies,
        harness: Harness,
        rendering: Rendering,
        connections: Connections,
        tell: Tell,
        replays: bool = True,
    ) -> None:
        access = Access(run_token)
        self._calls = ModelCalls(access=access, bodies=bodies, harness=harness, connections=connections, tell=tell, replays=replays)
        self._inquiries = Inquiries(access=access, bodies=bodies, model=model, harness=harness, rendering=rendering)
        self._chat, self._messages, self._responses = ChatCompletions(), Messages(), Responses(run_token)
        self._stored = StoredAnswers(access, self._calls, self._responses)
        self._document = ServedDocument(access, self._chat)

    def add_to(self, app: web.Application) -> None:
        app[OPEN].add(PREFIX)
        app.router.add_post(BASE + "/v1/chat/completions", self._chat_completions)
        app.router.add_post(BASE + "/v1/messages", self._anthropic_messages)
        app.router.add_post(BASE + "/v1/responses", self._openai_responses)
        self._stored.add_to(app, BASE)
        self._document.add_to(app, BASE)
        self._inquiries.add_to(app, BASE)
        app.router.add_route("*", PREFIX + r"{rest:[\s\S]*}", self._inquiries.unknown)

    def forget(self, execution: str) -> None:
        """It takes no more calls: what only they would need goes."""
        self._calls.forget(execution)
        self._chat.forget(execution)

    async def _chat_completions(self, request: web.Request) -> web.StreamResponse:
        return await self._calls.answer(request, self._chat)

    async def _anthropic_messages(self, request: web.Request) -> web.StreamResponse:
        return await self._calls.answer(request, self._messages)

    async def _openai_responses(self, request: web.Request) -> web.StreamResponse:
        return await self._calls.answer(request, self._responses)
