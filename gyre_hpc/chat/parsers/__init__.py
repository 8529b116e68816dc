"""Which kind of tool call a model writes. One file per kind."""

from gyre_hpc.chat.parsers.base import CallGrammar
from gyre_hpc.chat.parsers.hermes import Hermes
from gyre_hpc.chat.parsers.plain import Plain
from gyre_hpc.chat.parsers.qwen3_coder import Qwen3Coder
from gyre_hpc.config.model_schema import ParserKind

_KINDS: dict[ParserKind, type[CallGrammar]] = {
    ParserKind.hermes: Hermes,
    ParserKind.qwen3_coder: Qwen3Coder,
    ParserKind.plain: Plain,
}


def create_grammar(parser: ParserKind, template: str) -> CallGrammar:
    """The kind of `model.parser`; `auto` takes it from what the template's text tells the model to write."""
    if parser is ParserKind.auto:
        spelled = (("<function=", ParserKind.qwen3_coder), ("<tool_call>", ParserKind.hermes))
        parser = next((kind for mark, kind in spelled if mark in template), ParserKind.plain)
    return _KINDS[parser]()
