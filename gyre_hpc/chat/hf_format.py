"""The chat format of a Hugging Face folder: its tokenizer, a template, a parser of tool calls.

What the template does with a growing conversation was tried out when it was loaded (probe.py); suffixes are rendered only where
that is known to be right. `render` gives the ids that `transformers` gives, except for guarded marks and adapted turns.
"""

from collections.abc import Sequence
from typing import Any

from gyre_hpc.chat.base import Answer, ChatFormat, Message, Reader
from gyre_hpc.chat.guard import Guard
from gyre_hpc.chat.hf_tokenizer import HfTokenizer
from gyre_hpc.chat.parsers.base import CallGrammar
from gyre_hpc.chat.parsers.scanner import THINK_END
from gyre_hpc.chat.pieces import PieceEncoder
from gyre_hpc.chat.probe import Findings, Growth, probe
from gyre_hpc.chat.reader import StreamReader
from gyre_hpc.chat.suffix import SuffixText
from gyre_hpc.chat.template import ChatTemplate
from gyre_hpc.chat.turns import Adaptation, adapted, as_dicts
from gyre_hpc.errors import UserError


class HfFormat(ChatFormat):
    """Raises UserError for a template that renders nothing, or an answer that could never end."""

    tokenizer: HfTokenizer

    def __init__(
        self,
        tokenizer: HfTokenizer,
        template: ChatTemplate,
        grammar: CallGrammar,
        *,
        name: str,
        stop_ids: Sequence[int] = (),
        keep_thinking: bool = True,
        guard_marks: bool = False,
    ) -> None:
        """`stop_ids`: known ones; the template's own end of turn is added. `keep_thinking`: docs/decisions/0007."""
        self.name, self.tokenizer = name, tokenizer
        self._template, self._grammar, self._keep_thinking = template, grammar, keep_thinking
        special = [content for content, token in tokenizer.added.items() if token.special]
        self.findings = _probed(template, special, name)
        self.stop_ids = tuple(dict.fromkeys([*(tokenizer.special[end] for end in self.findings.turn_ends), *stop_ids]))
        if not self.stop_ids:
            raise UserError("model.template", name, "no token ends an assistant's turn, and tokenizer_config.json names no eos_token")
        self.notices = tuple(_notices(self.findings, grammar))
        self._suffix = SuffixText(template, self.findings.adaptation, self.findings.turn_ends)
        self._guard = Guard({*special, *(mark for mark in tokenizer.added if mark in template.text)}) if guard_marks else None
        self.pieces = PieceEncoder(tokenizer, [mark for mark in special if mark in template.text])

    def render(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> list[int]:
        turns: Sequence[Any] = as_dicts(adapted(messages, self.findings.adaptation, from_start=True))
        spacer = ""
        if self._guard is not None:
            turns, tools, spacer = self._guard.spaced(turns, tools)
        return self._encode(self._template.render(turns, tools), spacer)

    def render_suffix(self, messages: Sequence[Message], *, ended: bool, thought: bool = True) -> list[int]:
        self._prove(messages, thought)
        end, after, spacer = self._suffix.after(messages, self._guard)
        ids = self._encode(end + after, spacer)
        return ids[1:] if ended else ids

    def parse(self, ids: Sequence[int], *, stop: Sequence[str] = (), partial: bool = False, tools: Sequence[dict[str, Any]] = ()) -> Answer:
        reader = self.reader(stop=stop, tools=tools)
        answer = reader.feed(ids)
        return answer if partial else reader.finish()

    def reader(self, *, stop: Sequence[str] = (), tools: Sequence[dict[str, Any]] = ()) -> Reader:
        return StreamReader(
            self.tokenizer.stream(),
            self._grammar,
            stop_ids=self.stop_ids,
            thinks=THINK_END in self._template.text,
            thinking_begun=self.findings.thinking_begun,
            stop=stop,
            tools=tools,
        )

    def _prove(self, messages: Sequence[Message], thought: bool) -> None:
        """Raise ValueError unless the suffix is what the template makes of the whole conversation."""
        findings = self.findings
        if findings.growth is Growth.rewrites:
            raise ValueError(f"the chat template rewrites earlier turns: {findings.reason}")
        if findings.needs_names and any(turn.role == "tool" and not turn.name for turn in messages):
            raise ValueError("the chat template shows the names of tools, and a tool result has none")
        if findings.growth is Growth.forgets_thinking and not self._keep_thinking:
            if findings.thinking_closed:
                raise ValueError("the chat template drops the empty thinking of past prompts")
            if thought and self._suffix.drops_thinking(messages):
                raise ValueError("the chat template drops past thinking here")

    def _encode(self, text: str, spacer: str) -> list[int]:
        if not spacer:
            return self.pieces.encode(text)
        return [id for part in text.split(spacer) for id in self.pieces.encode(part)]


def _probed(template: ChatTemplate, special: Sequence[str], name: str) -> Findings:
    try:
        findings = probe(template, special)
    except ValueError as error:
        raise UserError("model.template", name, f"renders not even one question: {error}") from error
    return findings


def _notices(findings: Findings, grammar: CallGrammar) -> list[str]:
    notices = []
    if findings.growth is Growth.rewrites:
        notices.append(f"every call is rendered from scratch: {findings.reason}")
    if findings.adaptation is not Adaptation.none:
        notices.append(f"the chat template refuses system turns in mid-conversation: {findings.adaptation.value}")
    if not findings.shows_tools:
        notices.append("the chat template shows no tools")
    if not grammar.opening:
        notices.append("the parser knows no tool calls")
    return notices
