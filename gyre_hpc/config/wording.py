"""What Hydra and omegaconf say of bad input, in words that tell what to write instead. Pure.

Source of their words: hydra-core 1.3, omegaconf 2.3; what is not known here stays as they say it.
"""

import difflib
import re
from collections.abc import Sequence

from gyre_hpc.errors import UserError

_FORMS = "write KEY=VALUE, GROUP=NAME or +experiment=NAME"
_KINDS = (
    (r"could not be converted to Integer", "write a whole number"),
    (r"could not be converted to Float", "write a number"),
    (r"is not a valid bool", "write true or false"),
    (r"is not a ListConfig|with ListConfig", "write a list: {key}=[{value}]"),
    (r"Cannot assign \w+ to Dict|with DictConfig", "write names with values: {key}={{A:1,B:2}}"),
    (r"Cannot convert '\w+' to string", "write one value"),
    (r"is not Optional", "null is no value for it: leave it out, or write one"),
)
"""Words of omegaconf -> remedy."""
_SHOWN = 3
_FAR = 0.15
"""A name that is so much less like what was written than the likest one is not meant."""


def of_value(key: str, value: object, said: str) -> str:
    """The remedy for a value that is not of its key's type. said: omegaconf's message."""
    if options := re.search(r"Invalid value .*, expected one of \[(.*)\]", said):
        return f"one of: {options[1]}"
    return next((remedy.format(key=key, value=value) for words, remedy in _KINDS if re.search(words, said)), said)


def of_command_line(said: str) -> UserError:
    """Of overrides that are no overrides. said: Hydra's message in one line."""
    if several := re.search(r"Ambiguous value for argument '([^'=]+)=([^']*)'", said):
        key, value = several[1], several[2]
        return UserError(key, value, f"several values: add -m to make a run of each; a list is written {key}=[{value}]")
    if doubled := re.search(r"Multiple values for (\S+)\. To override a value use 'override \S+ (\S+)'", said):
        return UserError(doubled[1], doubled[2], f"it is chosen already: leave the + out, {doubled[1]}={doubled[2]}")
    if bare := re.search(r"Error parsing override '([^']*)'", said):
        return UserError("command line", bare[1], _FORMS)
    return UserError("command line", said.partition(" See http")[0], _FORMS)


def meant(written: str, names: Sequence[str]) -> list[str]:
    """Up to three of the dotted `names` that may have been meant: those that end alike, else the likest ones first."""
    last = written.rpartition(".")[2]
    if alike := [name for name in names if name.rpartition(".")[2] == last]:
        return alike[:_SHOWN]
    close = difflib.get_close_matches(written, names, n=_SHOWN, cutoff=0.6)
    likeness = [difflib.SequenceMatcher(None, written, name).ratio() for name in close]
    return [name for name, ratio in zip(close, likeness, strict=True) if ratio > likeness[0] - _FAR]
