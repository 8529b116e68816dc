"""No sandbox: the limits of the runner hold, nothing is hidden. docs/security.md says what stays open."""

from gyre_hpc.sandboxes.base import ANNOUNCE, Plan, Sandbox


class NoSandbox(Sandbox):
    """For machines without user namespaces, and for trusted tasks."""

    kind = "none"
    isolates = False

    def wrap(self, plan: Plan) -> list[str]:
        return [*ANNOUNCE, *plan.argv]

    def probe(self) -> str:
        return ""
