"""The makers' own clients: one question of each protocol, with as many retries as they are told, as a harness that knows nothing of us."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import httpx2
import openai

from gyre_hpc.protocol.tokens import execution_token
from tests.fakes.gateway_world import EXECUTION, TOKEN
from tests.fakes.spoken import Spoken

BROKEN = (openai.APIError, anthropic.APIError, httpx2.HTTPError)
"""What these clients raise when an answer breaks off or there is none."""


@asynccontextmanager
async def openai_client(url: str, retries: int, execution: str) -> AsyncIterator[openai.AsyncOpenAI]:
    key = execution_token(TOKEN, execution)
    async with openai.AsyncOpenAI(base_url=f"{url}/e/{execution}/v1", api_key=key, max_retries=retries) as client:
        yield client


async def sdk_ask(url: str, spoken: Spoken, text: str = "hello", *, stream: bool, retries: int = 0, execution: str = EXECUTION) -> str:
    """Text of the answer. Raises one of BROKEN."""
    if spoken.name == "messages":
        return await _messages(url, text, stream, retries, execution)
    async with openai_client(url, retries, execution) as client:
        if spoken.name == "responses":
            return await _responses(client, text, stream)
        return await _chat(client, text, stream)


async def _chat(client: openai.AsyncOpenAI, text: str, stream: bool) -> str:
    asked: Any = {"model": "m", "messages": [{"role": "user", "content": text}]}
    if not stream:
        whole = await client.chat.completions.create(**asked)
        assert whole.choices[0].finish_reason == "stop"
        return whole.choices[0].message.content or ""
    said, finish = "", None
    async for chunk in await client.chat.completions.create(**asked, stream=True):
        said += chunk.choices[0].delta.content or ""
        finish = chunk.choices[0].finish_reason or finish
    if finish is None:
        raise httpx2.RemoteProtocolError("the stream ended without a finish reason")
    return said


async def _responses(client: openai.AsyncOpenAI, text: str, stream: bool) -> str:
    if not stream:
        whole = await client.responses.create(model="m", input=text)
        assert whole.status == "completed"
        return whole.output_text
    said, completed = "", None
    async for event in await client.responses.create(model="m", input=text, stream=True):
        if event.type == "response.output_text.delta":
            said += event.delta
        elif event.type == "response.completed":
            completed = event.response.output_text
    if completed is None:
        raise httpx2.RemoteProtocolError("the stream ended before the response was completed")
    assert completed == said
    return said


async def _messages(url: str, text: str, stream: bool, retries: int, execution: str) -> str:
    asked: Any = {"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": text}]}
    key = execution_token(TOKEN, execution)
    async with anthropic.AsyncAnthropic(base_url=f"{url}/e/{execution}", api_key=key, max_retries=retries) as client:
        if not stream:
            whole = await client.messages.create(**asked)
        else:
            async with client.messages.stream(**asked) as events:
                said = "".join([piece async for piece in events.text_stream])
                whole = await events.get_final_message()
            if whole.stop_reason is None:
                raise httpx2.RemoteProtocolError("the stream ended without a stop reason")
            assert said == "".join(block.text for block in whole.content if block.type == "text")
        assert whole.stop_reason == "end_turn"
        return "".join(block.text for block in whole.content if block.type == "text")
