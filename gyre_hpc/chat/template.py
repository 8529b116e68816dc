"""Chat templates, rendered as `transformers` 5 renders them (tests hold the parity): sandboxed immutable environment, trimmed
blocks, loop controls, `tojson` without HTML escapes and in the order of keys, `raise_exception`, `strftime_now`,
`{% generation %}` without effect, namespaces without underscores.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import jinja2
import jinja2.ext
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from gyre_hpc.clock import unix_s
from gyre_hpc.errors import UserError


class ChatTemplate:
    """One template, or one for prompts without tools and one for prompts with them."""

    def __init__(
        self, source: str, *, with_tools: str = "", variables: Mapping[str, Any], now: Callable[[], float] = unix_s, origin: str = ""
    ) -> None:
        """`variables`: what every rendering knows besides messages and tools; `origin`: value of model.template, for errors.

        Raises UserError for a source that is no template.
        """
        self.text = source + with_tools
        self.tells_time = False
        """A rendering so far asked what time it is."""
        self._now = now
        self._variables = dict(variables)
        environment = _environment(self._strftime_now)
        self._plain = _compiled(environment, source, origin)
        self._with_tools = _compiled(environment, with_tools, origin) if with_tools else self._plain

    def render(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], *, prompt: bool = True) -> str:
        """Text; with `prompt`, up to where the assistant speaks. Raises ValueError when the template refuses the messages."""
        template = self._with_tools if tools else self._plain
        known = {"messages": list(messages), "tools": list(tools) or None, "documents": None, "add_generation_prompt": prompt}
        try:
            return template.render({**known, **self._variables})
        except Exception as error:  # a template is a program that others wrote
            raise ValueError(f"the chat template refuses them: {type(error).__name__}: {error}") from error

    def _strftime_now(self, format: str) -> str:
        self.tells_time = True
        return datetime.fromtimestamp(self._now()).strftime(format)


class _Generation(jinja2.ext.Extension):
    """`{% generation %}...{% endgeneration %}` marks what an assistant says; here it says it and nothing else."""

    tags = {"generation"}  # noqa: RUF012  # declared so by jinja2

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_said"), [], [], body).set_lineno(line)

    def _said(self, caller: Callable[[], str]) -> str:
        return caller()


class _Namespace(jinja2.utils.Namespace):
    """Without underscored attributes, which lead into the interpreter."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, rest = args[0], args[1:]
        attributes = dict(*rest, **kwargs)
        for name in attributes:
            _refuse_underscore(name)
        jinja2.utils.Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _refuse_underscore(name)
        super().__setitem__(name, value)


class _Dict:
    """`dict` for templates: to call, not to look into."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args, **kwargs)


def _environment(strftime_now: Callable[[str], str]) -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, jinja2.ext.loopcontrols])
    environment.filters["tojson"] = _tojson
    environment.globals |= {"raise_exception": _raise, "strftime_now": strftime_now, "dict": _Dict(), "namespace": _Namespace}
    return environment


def _compiled(environment: ImmutableSandboxedEnvironment, source: str, origin: str) -> jinja2.Template:
    try:
        return environment.from_string(source)
    except jinja2.TemplateSyntaxError as error:
        raise UserError("model.template", origin, f"is no chat template: line {error.lineno}: {error.message}") from error


def _tojson(
    value: Any, ensure_ascii: bool = False, indent: int | None = None, separators: tuple[str, str] | None = None, sort_keys: bool = False
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)


def _refuse_underscore(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a template may not set {name!r} on a namespace")
