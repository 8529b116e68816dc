"""`python -m gyre_hpc.rehearsal.cell`: a rehearsed cell that computes nothing. No torch."""

import sys

from gyre_hpc.chat.base import ChatFormat
from gyre_hpc.engines.scripted import ScriptedAnswer, ScriptedEngine
from gyre_hpc.engines.served import ServedEngine
from gyre_hpc.rehearsal.cell_process import Part, main

_TOKENS_PER_TICK = 16


def build(part: Part, chat_format: ChatFormat, script: ScriptedAnswer) -> ServedEngine:
    return ScriptedEngine(
        script,
        run_token=part.run_token,
        host=part.interface,
        max_context=part.max_context,
        vocab_size=chat_format.tokenizer.vocab_size,
        held=True,
        decode=chat_format.tokenizer.decode,
    )


def advance(engine: ServedEngine) -> None:
    assert isinstance(engine, ScriptedEngine)
    engine.release(_TOKENS_PER_TICK)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], build, advance))
