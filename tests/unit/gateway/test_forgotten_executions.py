"""A whole gateway, started and asked over HTTP, remembers nothing of executions that ended."""

import asyncio
from pathlib import Path

from tests.fakes.gateway_world import message, spelled, until, world


def test_what_is_remembered_of_conversations_goes_with_their_executions(tmp_path: Path) -> None:
    async def steps() -> None:
        async with world(tmp_path) as here:
            await here.engine(lambda *asked, **facts: spelled("fine"))
            here.route(0)
            executions = tuple(f"train-0-{number}-0" for number in range(4))
            for execution in executions:
                messages = [{"role": "user", "content": f"go {execution}"}]
                for _ in range(2):
                    answer = await here.ask(messages, execution=execution)
                    messages += [message(answer), {"role": "user", "content": "on"}]
            surface, engines = here.gateway._surface, here.gateway._engines
            assert surface is not None
            memories = (surface._calls._memory._threads, surface._chat._memory._known, engines._ids_text._known)
            assert [len(memory) for memory in memories] == [4, 4, 4]
            here.route(0, ended=executions[:3])
            await until(lambda: len(memories[0]) == 1, "the ends of three executions")
            assert all(list(memory) == [executions[3]] for memory in memories)

    asyncio.run(steps())
