"""`python -m gyre_hpc.processes.scripted`: scripted agents behind an engine's HTTP API, for the warm start. No torch.

Process `scripted-0` registers the URL at which calls are taken; the routing table names it while demonstrations are
collected. It is stateless: the answer follows from the prompt and the call's sampling key.
"""

import asyncio
import logging
import random
import sys
from collections.abc import Sequence

from gyre_hpc.chat import create_chat_format
from gyre_hpc.config.schema import Config
from gyre_hpc.engines.scripted import ScriptedAnswer, ScriptedEngine
from gyre_hpc.machines.base import Restarted
from gyre_hpc.machines.batch.settings import BEFORE_FIRST_STEP
from gyre_hpc.machines.member import Member
from gyre_hpc.protocol.identity import Version
from gyre_hpc.shell import stacks
from gyre_hpc.shell.arguments import Birth, read_birth
from gyre_hpc.shell.events import open_events
from gyre_hpc.shell.host import Host
from gyre_hpc.shell.lifetime import end_with_parent
from gyre_hpc.suites import create_scripted_agent

log = logging.getLogger(__name__)
_TERM = 0
"""The routing table's term for the scripted agents; they have no role orders."""


def demonstrator(config: Config) -> ScriptedAnswer:
    """(prompt ids, key) -> ids of the agent's answer with the end-of-turn mark. Raises UserError if the suite has no agent."""
    chat = create_chat_format(config.model)
    agent = create_scripted_agent(config.suite, config.warm_start.sloppiness)

    def answer(prompt: tuple[int, ...], key: bytes) -> Sequence[int]:
        text = agent(chat.tokenizer.decode(prompt), random.Random(key))
        return [*chat.tokenizer.encode(text), chat.stop_ids[0]]

    return answer


async def serve(birth: Birth) -> None:
    """Until the parent goes, a signal comes, or a newer attempt of the run lives."""
    stacks.of_birth(birth)
    config, interface = birth.config, birth.config.network.interface
    events = open_events(birth.folder, birth.name, birth.attempt)
    engine = ScriptedEngine(
        demonstrator(config),
        run_token=birth.run_token,
        host=interface,
        max_context=config.model.max_context,
        decode=create_chat_format(config.model).tokenizer.decode,
    )
    host = Host(
        name=birth.name,
        attempt=birth.attempt,
        run_token=birth.run_token,
        addresses=birth.addresses,
        actions={},
        note=events.note,
        record_to=birth.folder.inputs(birth.name, birth.attempt) if config.debug.record_inputs else None,
    )
    engine.add_to(host.app)
    end_with_parent(host.end)
    url = await host.bind(interface)
    await engine.wake(Version(0, BEFORE_FIRST_STEP))
    engine.open_admission(_TERM)
    host.run(Member(birth.register(url)), Restarted())
    log.info("%s ends: %s", birth.name, await host.ended)
    await engine.close()
    await host.close()
    events.close()


def main(argv: list[str] | None = None) -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    asyncio.run(serve(read_birth(argv)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
