"""The policy: a small decoder of Qwen3 architecture in functional form, and its Hugging Face checkpoints.

Importing this package loads no torch; import the modules: qwen3_config (shape), parameters (names, random start),
qwen3 (training forward), checkpoint (folders), incremental (the engine's forward). Several ranks hold one model together with
sharding (who has what), tensor_ranks (collectives), tensor_parallel (autograd), sharded_incremental (the engine's part).
"""
