"""Which cells serve together (engine.sglang.kv=pd): cell 2i prefills for cell 2i+1. No pairs with any other engine."""

from gyre_hpc.config.engine_schema import SGLangKV
from gyre_hpc.config.schema import Config, EngineKind


def pairs_of(config: Config) -> tuple[tuple[str, str], ...]:
    """(cell that prefills, cell that decodes); a valid configuration has an even number of cells."""
    if config.engine.kind is not EngineKind.sglang or config.engine.sglang.kv is not SGLangKV.pd:
        return ()
    return tuple((f"cell-{index}", f"cell-{index + 1}") for index in range(0, config.cluster.cells - 1, 2))


def prefills(config: Config, cell: str) -> bool:
    """`cell` computes prompts for another one, and takes no calls."""
    return any(cell == one for one, _ in pairs_of(config))


def prefiller_of(config: Config, cell: str) -> str | None:
    """The cell that prefills for `cell`; None: it prefills itself."""
    return next((one for one, other in pairs_of(config) if other == cell), None)
