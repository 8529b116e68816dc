"""Sandboxes behind one interface: none, bwrap; `auto` picks bwrap when its probe works."""

import logging

from gyre_hpc.config.schema import SandboxKind
from gyre_hpc.errors import UserError
from gyre_hpc.sandboxes.base import Limits, Plan, Sandbox
from gyre_hpc.sandboxes.bwrap import Bubblewrap
from gyre_hpc.sandboxes.none import NoSandbox

__all__ = ["Bubblewrap", "Limits", "NoSandbox", "Plan", "Sandbox", "create_sandbox"]

log = logging.getLogger(__name__)


def create_sandbox(kind: SandboxKind, program: str = "bwrap") -> Sandbox:
    """The sandbox of `sandbox.kind`; `auto` probes once and says so when it falls back. Raises UserError."""
    if kind is SandboxKind.none:
        return NoSandbox()
    sandbox = Bubblewrap(program)
    reason = sandbox.probe()
    if not reason:
        return sandbox
    if kind is SandboxKind.bwrap:
        raise UserError("sandbox.kind", "bwrap", f"bubblewrap does not work here ({reason}); install it or set sandbox.kind=none")
    log.warning("NO SANDBOX: bubblewrap does not work here (%s); harnesses run with all rights of this user", reason)
    return NoSandbox()
