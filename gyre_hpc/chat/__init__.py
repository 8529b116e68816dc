"""Text and tokens: tokenizers, chat templates, parsers of tool calls. Pure; no I/O beyond reading tokenizer files."""
