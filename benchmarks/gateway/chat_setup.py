"""The chat format of the gateway under test, and answers in its tokens.

A real tokenizer where one is given; otherwise a byte-level BPE as Qwen's, trained here on the standard library's source (16k merges:
somewhat more tokens per text than a real one, so somewhat more work).
"""

import secrets
from pathlib import Path

import orjson
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from benchmarks.gateway.bodies import source_text
from benchmarks.gateway.plan import Plan
from gyre_hpc.chat import create_chat_format
from gyre_hpc.config.schema import ModelConfig

_SAID = "I will read the next file and then run the tests again."
_LONG_TOKENS = 300
_VOCABULARY = 16384
_MARKS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def make_plan(tokenizer: str, cache: Path) -> Plan:
    """`tokenizer`: a Hugging Face folder with a chat template; empty: one made here, kept below `cache`."""
    template, describe = "own", tokenizer
    if not tokenizer:
        tokenizer, template = str(_trained(cache / "benchmarks" / f"bpe-{_VOCABULARY}")), "chatml"
        describe = f"byte-level BPE trained here, {_VOCABULARY} ids, built-in chatml template"
    chat = create_chat_format(ModelConfig(tokenizer=tokenizer, template=template))
    encode, stop = chat.tokenizer.encode, chat.stop_ids[0]
    long_ids = encode(source_text(200_000)[100_000:][: 16 * _LONG_TOKENS])[:_LONG_TOKENS]
    digits = [encode(str(digit)) for digit in range(10)]
    assert all(len(ids) == 1 for ids in digits), f"{describe}: a digit is more than one token"
    return Plan(
        run_token=secrets.token_hex(16),
        tokenizer=tokenizer,
        template=template,
        describe=describe,
        text=_SAID,
        long_text=chat.parse([*long_ids, stop]).content,
        answers={"now": (*encode(_SAID), stop), "long": (*long_ids, stop)},
        digits=tuple(ids[0] for ids in digits),
        space=encode(" ")[0],
    )


def chars_for(plan: Plan, num_tokens: int) -> int:
    """Characters of source text that make about so many tokens."""
    tokenizer = create_chat_format(ModelConfig(tokenizer=plan.tokenizer, template=plan.template)).tokenizer
    # The part that conversations slide over.
    text = source_text(20_000)
    return num_tokens * len(text) // len(tokenizer.encode(text))


def _trained(folder: Path) -> Path:
    if (folder / "tokenizer_config.json").exists():
        return folder
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(_WORDS), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=_VOCABULARY, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=list(_MARKS)
    )
    text = source_text(2_000_000)
    backend.train_from_iterator([text[at : at + 20_000] for at in range(0, len(text), 20_000)], trainer)
    backend.add_special_tokens([AddedToken(mark, special=True) for mark in _MARKS])
    folder.mkdir(parents=True, exist_ok=True)
    backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_bytes(orjson.dumps({"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}))
    return folder
