"""What the gateway machine is told once."""

from dataclasses import dataclass

from gyre_hpc.config.schema import Config
from gyre_hpc.protocol.supervision import Register


@dataclass(frozen=True, kw_only=True, slots=True)
class GatewaySettings:
    """Numbers and names one shard works with; seconds unless the name says otherwise."""

    register: Register
    """Its name is the shard's."""
    clock_offset_s: float
    """Unix time minus monotonic time at start; records carry unix time."""
    stop_ids: tuple[int, ...]
    run_seed: int = 0
    max_context: int = 512
    max_output_tokens: int = 64
    """Of one call, 0 = as many as it asks for, or as its context has room for."""
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    progress_tokens: int = 64
    progress_s: float = 1.0
    gone_s: float = 5.0
    """An attempt whose cell left the table has this long to end itself."""
    abandon_s: float = 30.0
    keepalive_s: float = 15.0
    hold_s: float = 60.0
    """A client that does not stream gets its first keep-alive after this; before, errors still have a status of their own."""
    unread_s: float = 120.0
    """A client that has not taken its whole answer this long after its end is hung up on."""
    max_calls: int = 64
    max_tokens_per_execution: int = 0
    """Sampled tokens, 0 = no limit."""
    call_deadline_s: float = 600.0
    keep_kv: bool = False
    """Engines keep the KV of older weights."""
    report_s: float = 1.0
    """A report is sent at least so often; news go sooner."""

    @classmethod
    def of(cls, config: Config, *, register: Register, clock_offset_s: float, stop_ids: tuple[int, ...]) -> "GatewaySettings":
        """From the run's configuration."""
        gateway, algo = config.gateway, config.algo
        return cls(
            register=register,
            clock_offset_s=clock_offset_s,
            stop_ids=stop_ids,
            run_seed=config.seed,
            max_context=config.model.max_context,
            max_output_tokens=config.harness.max_output_tokens,
            temperature=algo.temperature,
            top_p=algo.top_p,
            top_k=algo.top_k,
            progress_tokens=gateway.progress_tokens,
            progress_s=gateway.progress_s,
            gone_s=gateway.table_lease_s,
            abandon_s=gateway.abandon_s,
            keepalive_s=gateway.keepalive_s,
            hold_s=gateway.hold_s,
            unread_s=gateway.unread_s,
            max_calls=gateway.max_calls,
            max_tokens_per_execution=gateway.max_tokens_per_execution,
            call_deadline_s=gateway.call_deadline_s,
            keep_kv=config.engine.keep_kv,
        )
