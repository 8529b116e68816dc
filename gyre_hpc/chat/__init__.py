"""Chat formats: a tokenizer, a template and a parser that belong together. One file per kind.

`drill` is a kind of its own; everything else is the tokenizer of a Hugging Face folder with a template and a parser.
"""

from pathlib import Path

from gyre_hpc.chat.base import ChatFormat
from gyre_hpc.chat.drill import DrillFormat
from gyre_hpc.config.model_schema import ModelConfig
from gyre_hpc.errors import UserError


def create_chat_format(model: ModelConfig | str, template: str = "drill") -> ChatFormat:
    """The format of a model; a tokenizer and a template alone stand for a model with defaults otherwise.

    Raises UserError naming the field of `model.` that does not fit. Takes about a second for a large tokenizer.
    """
    if isinstance(model, str):
        model = ModelConfig(tokenizer=model, template=template)
    if "drill" in (model.tokenizer, model.template):
        return _drill(model)
    # Libraries that a drill run never needs.
    from gyre_hpc.chat.folder import hf_format

    return hf_format(model, Path(model.tokenizer).expanduser())


def _drill(model: ModelConfig) -> ChatFormat:
    pair = f"{model.tokenizer}+{model.template}"
    if pair != "drill+drill":
        raise UserError("model.tokenizer+model.template", pair, "these go together only as drill+drill; else name a folder and 'own'")
    for field, value, default in (("parser", model.parser.value, "auto"), ("template_args", model.template_args, {})):
        if value != default:
            raise UserError(f"model.{field}", value, f"the drill format has its own: leave it at {default}")
    return DrillFormat()
