"""`python -m gyre_hpc.rehearsal.embedded_cell`: a rehearsed cell that computes every token of a very small decoder with torch.

The script says which token comes; prefill, prefix cache, log-probs, retraction at a weight update are as ever.
"""

import sys

import torch

from gyre_hpc.chat.base import ChatFormat
from gyre_hpc.config.schema import EngineConfig
from gyre_hpc.engines.embedded.engine import EmbeddedEngine
from gyre_hpc.engines.scripted import ScriptedAnswer
from gyre_hpc.engines.served import ServedEngine
from gyre_hpc.models.parameters import random_parameters
from gyre_hpc.models.qwen3_config import Qwen3Config
from gyre_hpc.protocol.identity import Version
from gyre_hpc.rehearsal.base import VERSIONS
from gyre_hpc.rehearsal.cell_process import Part, main
from gyre_hpc.transport.snapshot_store import HostSnapshotStore

_PAGE = 64


def build(part: Part, chat_format: ChatFormat, script: ScriptedAnswer) -> ServedEngine:
    model = Qwen3Config(
        vocab_size=chat_format.tokenizer.vocab_size,
        hidden_size=16,
        num_layers=1,
        num_heads=1,
        num_kv_heads=1,
        head_dim=8,
        intermediate_size=16,
        max_context=part.max_context,
        tie_word_embeddings=True,
    )
    store = HostSnapshotStore()
    for number, text in enumerate(VERSIONS):
        store.put(Version.parse(text), random_parameters(model, number))
    return EmbeddedEngine(
        EngineConfig(page_size=_PAGE, kv_tokens=2 * (part.max_context // _PAGE + 1) * _PAGE, max_batch=16, prefill_chunk=1024),
        model=model,
        store=store,
        run_token=part.run_token,
        host=part.interface,
        stream_tokens=4,
        stream_s=0.02,
        decode=chat_format.tokenizer.decode,
        script=script,
    )


def advance(engine: ServedEngine) -> None:
    """It computes by itself."""


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main(sys.argv[1:], build, advance))
