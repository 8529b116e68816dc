"""From the keys of `model.` to the chat format of a Hugging Face folder."""

from pathlib import Path

from gyre_hpc.chat.hf_format import HfFormat
from gyre_hpc.chat.hf_tokenizer import HfTokenizer, read_json
from gyre_hpc.chat.parsers import create_grammar
from gyre_hpc.chat.template import ChatTemplate
from gyre_hpc.chat.template_source import template_sources
from gyre_hpc.config.model_schema import ModelConfig, PastThinking


def hf_format(model: ModelConfig, folder: Path) -> HfFormat:
    """Reads tokenizer.json, tokenizer_config.json, generation_config.json and the template. Raises UserError."""
    tokenizer = HfTokenizer(folder)
    source, with_tools = template_sources(model.template, folder, tokenizer.config)
    variables = {**tokenizer.named, **model.template_args}
    template = ChatTemplate(source, with_tools=with_tools, variables=variables, origin=model.template)
    return HfFormat(
        tokenizer,
        template,
        create_grammar(model.parser, template.text),
        name=model.template,
        stop_ids=_stop_ids(tokenizer, folder),
        keep_thinking=model.past_thinking is PastThinking.keep,
        guard_marks=model.guard_marks,
    )


def _stop_ids(tokenizer: HfTokenizer, folder: Path) -> list[int]:
    """Ids after which there is nothing to say: end of sequence as both files name it, and padding."""
    named = [tokenizer.special.get(tokenizer.named.get(name, "")) for name in ("eos_token", "pad_token")]
    listed = read_json(folder / "generation_config.json", optional=True).get("eos_token_id")
    return [id for id in [*named, *(listed if isinstance(listed, list) else [listed])] if isinstance(id, int)]
