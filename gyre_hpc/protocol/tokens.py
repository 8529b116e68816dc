"""Bearer tokens derived from the run token, so that nobody has to hand out or store a list of them."""

import functools
import hashlib
import hmac


@functools.lru_cache(maxsize=1024)  # a shard checks one with every request
def execution_token(run_token: str, execution: str) -> str:
    """What the harness of `execution` shows to the gateway: hex HMAC-SHA256(run token, execution id)."""
    return hmac.new(run_token.encode(), execution.encode(), hashlib.sha256).hexdigest()


def is_execution_token(given: str, run_token: str, execution: str) -> bool:
    """Constant-time check of a token a client showed."""
    return hmac.compare_digest(given.encode(), execution_token(run_token, execution).encode())
