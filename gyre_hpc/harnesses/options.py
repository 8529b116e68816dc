"""What a harness is told of group `harness`."""

from typing import Any

from gyre_hpc.config.schema import Config


def options_of(config: Config) -> dict[str, Any]:
    """Group `harness` by field; context_tokens is the model's window where it is left at 0."""
    options = dict(vars(config.harness))
    options["context_tokens"] = options["context_tokens"] or config.model.max_context
    return options
