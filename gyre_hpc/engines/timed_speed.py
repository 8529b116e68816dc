"""How fast an engine is that computes nothing."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Speed:
    """All durations are multiplied by time_scale: with 0.1 everything takes a tenth of the time."""

    tokens_per_s: float
    half: float
    prefill_tokens_per_s: float
    time_scale: float

    def per_call(self, num_decoding: int) -> float:
        """Tokens per second of one call among `num_decoding`."""
        return self.tokens_per_s / (num_decoding + self.half) / self.time_scale

    def prefill_s(self, num_tokens: int) -> float:
        return num_tokens / self.prefill_tokens_per_s * self.time_scale
