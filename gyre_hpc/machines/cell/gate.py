"""The gate in front of an engine: a request is taken now or refused now, and never parked.

Asked by the engine itself, right before it takes a request, with nothing between; the simulation asks the same lines.
"""


def refusal(asked: str | None, *, is_open: bool, term: int) -> str | None:
    """Why a request written for the term `asked` (None: for any) is not taken; None: it is. `term`: of the last order to open or close."""
    if not is_open:
        return "admission closed"
    if asked is not None and asked != str(term):
        return "other term"
    return None
