"""The policy: a small decoder of Qwen3 architecture in functional form, and its Hugging Face checkpoints.

Importing this package loads no torch; import the modules: qwen3_config (shape), parameters (names, random start),
qwen3 (training forward), checkpoint (folders), decode (the engine's incremental forward).
"""
