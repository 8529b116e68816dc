"""Runs so small that a real SGLang on CPU serves them in minutes."""

from tests.fakes.sglang_here import sglang_config

START_S = 600.0
"""Two servers start at once, which takes 40 s of two cores that have nothing else to do."""
TINY = (
    "cluster.cells=2", "algo.groups_per_batch=3", "algo.group_size=4", "engine.kv_tokens=16384", "engine.max_batch=16",
    "evaluation.tasks=0", "evaluation.before=false", "evaluation.after=false", "tracker=none", "debug.record_inputs=true",
)  # fmt: skip
LONG_CALLS = (
    "warm_start.executions=0",
    "warm_start.epochs=0",
    "model.init_std=0.1",
    "harness.max_output_tokens=100",
    "harness.max_calls=4",
)
"""A model that knows nothing talks until it is cut off: there is always a call to interrupt."""


def with_sglang() -> tuple[str, ...]:
    sglang = sglang_config()
    return (
        "engine=sglang", f"engine.sglang.environment={sglang.environment}", f"engine.sglang.launcher={sglang.launcher}",
        "engine.sglang.device=cpu",
    )  # fmt: skip
