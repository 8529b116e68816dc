"""Text without what differs between two processes that do the same: readings of clocks, random names, numbers the system hands out.

For comparing alone: what is recorded and rendered keeps its own words. Two texts that differ in more than this are different, and two
results that differ in nothing else are taken for the same (decision 0019). Everything here is a pure function of the text.
"""

import re
from collections.abc import Callable, Sequence

_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6}\.?"
_WEEKDAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]{0,6}"
_CLOCK = r"(?<![\d.:])\d{1,2}:\d\d(?::\d\d(?:[.,]\d+)?)?(?: ?[AaPp][Mm]\b)?(?: ?(?:Z\b|UTC|GMT|[+-]\d\d:?\d\d\b))?(?![\d:])"
_DATE = (
    r"\d{4}[-/.]\d\d?[-/.]\d\d?(?!\d)|\d\d?/\d\d?/\d{4}\b"
    rf"|{_MONTH} +\d\d?(?:st|nd|rd|th)?(?:,? +\d{{4}}\b)?(?!\d)|\d\d?(?:st|nd|rd|th)? {_MONTH}(?! +\d\d?\b)(?:,? \d{{4}}\b)?"
)
_UNIT = r"(?:ns|us|µs|μs|ms|msec|s|sec|secs|second|seconds|min|mins|minute|minutes)\b"
_RULES = {
    "uuid": r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b",
    "time": rf"(?:{_WEEKDAY},? +)?(?:{_DATE})(?:(?:T|,? +(?:at +)?)(?<![\d.:]|T){_CLOCK}|T\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?"
    rf"(?: +\d{{4}}\b)?|{_CLOCK}(?: +\d{{4}}\b)?|(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day\b",
    "epoch": r"1[5-9]\d{8}(?:\d{3}|\d{6}|\d{9})?(?:\.\d+)?\b",
    "temporary": r"tmp\.[A-Za-z0-9]{6,}|(?<=/)tmp[A-Za-z0-9_]{6,}",
    "duration": rf"\d+m\d+(?:\.\d+)?s\b|\d+(?:\.\d+)? ?{_UNIT}",
    "process": r"(?:(?<=\bpid[ =:])|(?<=\bPID[ =:])|(?<=\bpid[=:] )|(?<=\bPID[=:] )|(?<=\bprocess )|(?<=^\[\d\] ))\d+\b",
    "port": r"(?:(?<=localhost:)|(?<=127\.0\.0\.1:)|(?<=0\.0\.0\.0:)|(?<=::1\]:)|(?<=\bport ))\d{2,5}\b",
    "hex": r"0x[0-9a-fA-F]{4,16}\b|(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{7,64}\b",
}
"""Each begins at the beginning of a word."""
_BEGIN = r"\b(?=[0-9]|[a-fA-F]{0,8}[0-9]|tmp|[JFMASONDTW][a-z]{2})"
"""What all of them begin with: most words are passed over here."""
_HINT = re.compile(r"[0-9]")
"""What hardly any of it is without: most lines are, and looking closely costs twenty times as much."""


def canonical_form(extra: Sequence[str] = ()) -> Callable[[str], str]:
    """text -> the text with <kind> in the place of everything volatile; `extra`: more patterns, looked for first, in all lines."""
    rules = re.compile(_BEGIN + "(?:" + "|".join(f"(?P<{name}>{rule})" for name, rule in _RULES.items()) + ")")
    own = re.compile("|".join(f"(?:{pattern})" for pattern in extra)) if extra else None

    def canonical(text: str) -> str:
        if own is not None:
            text = own.sub("<own>", text)
        if _HINT.search(text) is None and "tmp" not in text:
            return text
        lines = text.split("\n")
        return "\n".join([rules.sub(_kind, line) if _HINT.search(line) or "tmp" in line else line for line in lines])

    return canonical


def _kind(found: re.Match[str]) -> str:
    return f"<{found.lastgroup}>"
