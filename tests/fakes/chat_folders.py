"""Hugging Face folders with small tokenizers, and templates of every manner: made here, nothing is fetched."""

import json
from functools import cache
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from tests.fakes.own_folder import own_folder

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
WORDS = ("<tool_call>", "</tool_call>", "<think>", "</think>", "<tool_response>", "</tool_response>")
"""Added, but not special, as Qwen3 has them."""
TEXTS = (
    "hello hello hello world, hello there; the user asks and the assistant answers with a tool call.",
    '{"name": "shell", "arguments": {"command": "cat notes.txt"}}',
    "<function=shell>\n<parameter=command>\nls -l\n</parameter>\n</function>",
    "système naïve façade \N{BOTTLE WITH POPPING CORK} \N{CJK UNIFIED IDEOGRAPH-4E2D}\N{CJK UNIFIED IDEOGRAPH-6587}",
)

_TURN = "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
_PROMPT = "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
_HERMES_CALLS = """
{%- for call in message.tool_calls or [] %}
    {{- '\\n' if message.content or not loop.first }}
    {{- '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' + (call.function.arguments | tojson) + '}\\n</tool_call>' }}
{%- endfor %}"""
_TOOLS = "{%- if tools %}{{- '<|im_start|>system\\nTools: ' + (tools | tojson) + '<|im_end|>\\n' }}{%- endif %}"

FORGETS = (
    """{%- set last = namespace(at=-1) %}
{%- for message in messages %}{%- if message.role == 'user' %}{%- set last.at = loop.index0 %}{%- endif %}{%- endfor %}"""
    + _TOOLS
    + """{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' }}
    {%- if message.reasoning_content and loop.index0 > last.at %}
        {{- '<think>\\n' + message.reasoning_content + '\\n</think>\\n\\n' }}
    {%- endif %}
    {{- message.content }}"""
    + _HERMES_CALLS
    + "{{- '<|im_end|>\\n' }}{%- endfor %}"
    + _PROMPT
)
"""Thinking before the last question is dropped, as reasoning templates do."""
OPENS_THINKING = FORGETS.replace("'<|im_start|>assistant\\n'", "'<|im_start|>assistant\\n<think>\\n'")
"""The prompt begins the thinking."""
CODER = (
    _TOOLS
    + """{%- for message in messages %}
    {%- if message.role == 'tool' %}
        {{- '<|im_start|>user\\n' if loop.first or loop.previtem.role != 'tool' }}
        {{- '<tool_response>\\n' + message.content + '\\n</tool_response>\\n' }}
        {{- '<|im_end|>\\n' if loop.last or loop.nextitem.role != 'tool' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content }}
        {%- for call in message.tool_calls or [] %}
            {{- '\\n' if message.content or not loop.first }}
            {{- '<tool_call>\\n<function=' + call.function.name + '>\\n' }}
            {%- for key, value in call.function.arguments | items %}
                {{- '<parameter=' + key + '>\\n' + (value if value is string else value | tojson) + '\\n</parameter>\\n' }}
            {%- endfor %}
            {{- '</function>\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}"""
    + _PROMPT
)
"""Calls as XML; successive tool results are one user turn."""
COUNTS_TURNS = "{{- '<|im_start|>system\\nTurn ' + messages | length | string + '<|im_end|>\\n' }}" + CODER
TELLS_TIME = "{{- '<|im_start|>system\\n' + strftime_now('%d %B %Y') + '<|im_end|>\\n' }}" + CODER
MERGES_RESULTS = (
    _TOOLS
    + "{%- for message in messages %}{%- if message.role != 'tool' %}"
    + _TURN
    + """{%- endif %}{%- endfor %}
{%- for message in messages %}
    {%- if message.role == 'tool' %}{{- '<|im_start|>tool\\n' + message.content + '<|im_end|>\\n' }}{%- endif %}
{%- endfor %}"""
    + _PROMPT
)
"""Tool results stand at the end, together."""
STRICT = (
    """{%- for message in messages %}
    {%- if message.role == 'system' and not loop.first %}{{- raise_exception('system comes first') }}{%- endif %}
    {%- if not loop.first and loop.previtem.role == message.role == 'user' %}{{- raise_exception('roles must alternate') }}{%- endif %}
    """
    + _TURN
    + "{%- endfor %}"
    + _PROMPT
)
"""Refuses system turns in mid-conversation and two user turns in a row; knows no tools."""
NAMES_RESULTS = CODER.replace("'<tool_response>\\n' + message.content", "'<tool_response>\\n' + message.name + ': ' + message.content")
"""Tool results show the tool's name."""
TEMPLATES = {
    "forgets": FORGETS,
    "opens_thinking": OPENS_THINKING,
    "coder": CODER,
    "counts_turns": COUNTS_TURNS,
    "tells_time": TELLS_TIME,
    "merges_results": MERGES_RESULTS,
    "strict": STRICT,
    "names_results": NAMES_RESULTS,
}


@cache
def tokenizer_folder(template: str = "", *, nfc: bool = False) -> Path:
    """A folder with a byte-level BPE of some 700 tokens with ChatML's marks, and one of TEMPLATES as its own template."""
    folder = own_folder("tokenizer")
    backend = Tokenizer(models.BPE())
    if nfc:
        backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=700, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=list(SPECIAL)
    )
    backend.train_from_iterator(TEXTS * 5, trainer)
    backend.add_tokens([AddedToken(word, normalized=False) for word in WORDS])
    backend.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    if template:
        config["chat_template"] = TEMPLATES[template]
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder
