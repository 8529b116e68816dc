"""What a caller can act on. Everything else is a bug and rises as it is.

GyreError
├── UserError          bad input: message names field, value and remedy; exit code 2, no traceback
│   └── NoRun          a path that is no run folder
├── CellLost           the cell died or fell silent; another cell can go on
├── EngineBusy         the cell's admission is closed (HTTP 409); try another cell
├── TransferFailed     a transfer missed its deadline or its checksum
├── StaleMessage       sender is from an older attempt, term or fence (HTTP 409)
└── StorageFull        the run folder cannot take a write now; pauses admission
"""


class GyreError(Exception):
    """Base of all errors that somebody can act on."""


class UserError(GyreError, ValueError):
    """Bad input. Build it with `field`, `value` and `remedy` so that the text always names all three."""

    def __init__(self, field: str, value: object, remedy: str) -> None:
        self.field, self.value, self.remedy = field, value, remedy
        super().__init__(f"{field}={value!r}: {remedy}")


class NoRun(UserError):
    """`path`, as it was given, is no run folder; `field` names the option."""

    def __init__(self, field: str, path: str) -> None:
        super().__init__(field, path, "name a run folder, one that holds config.yaml")
        self.path = path


class CellLost(GyreError):
    """The cell died or did not answer within its deadline."""


class EngineBusy(GyreError):
    """The cell's admission is closed; the request was not taken."""


class TransferFailed(GyreError):
    """A transfer missed its deadline, or its content did not match its checksum."""


class StaleMessage(GyreError):
    """The message belongs to an older attempt, term or fence."""


class StorageFull(GyreError):
    """A write to the run folder failed with ENOSPC, EDQUOT or ESTALE."""
