"""Chat formats: a tokenizer, a template and a parser that belong together. One file per kind."""

from gyre_hpc.chat.base import ChatFormat
from gyre_hpc.chat.drill import DrillFormat
from gyre_hpc.errors import UserError

_FORMATS: dict[tuple[str, str], type[DrillFormat]] = {("drill", "drill"): DrillFormat}


def create_chat_format(tokenizer: str, template: str) -> ChatFormat:
    """The format of `model.tokenizer` and `model.template`. Raises UserError for an unknown pair."""
    if (tokenizer, template) not in _FORMATS:
        known = ", ".join(f"{t}+{p}" for t, p in _FORMATS)
        raise UserError("model.tokenizer+model.template", f"{tokenizer}+{template}", f"no such chat format; known: {known}")
    return _FORMATS[tokenizer, template]()
