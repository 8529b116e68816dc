"""The ids of the `drill` tokenizer: 256 bytes, then marks (control), then words.

Marks are what a template and a parser speak: only `encode` of trusted text produces them, never the content of a message.
Words are frequent pieces of shell sessions and short English; any text may contain them. Both save tokens, nothing else:
every text can also be written in bytes.
"""

TOOL_CALL_OPEN = "<tool_call>"
TOOL_CALL_CLOSE = "</tool_call>"
SHELL_CALL_OPEN = '<tool_call>{"name":"shell","arguments":{"command":"'
SHELL_CALL_CLOSE = '"}}</tool_call>'
TURN_OPEN = "<|im_start|>"
TURN_CLOSE = "<|im_end|>"
PAD = "<|endoftext|>"
TOOLS_OPEN = "\n<tools>"
TOOLS_CLOSE = "</tools>"
ROLES = ("system", "user", "assistant", "tool")


def turn_open(role: str, *, first: bool) -> str:
    """Text before a turn's content; every turn but the first follows a line break, as in ChatML."""
    return f"{'' if first else chr(10)}{TURN_OPEN}{role}\n"


MARKS: tuple[str, ...] = (
    PAD,
    TURN_OPEN,
    TURN_CLOSE,
    *(turn_open(role, first=True) for role in ROLES),
    *(turn_open(role, first=False) for role in ROLES),
    TOOL_CALL_OPEN,
    TOOL_CALL_CLOSE,
    SHELL_CALL_OPEN,
    SHELL_CALL_CLOSE,
    TOOLS_OPEN,
    TOOLS_CLOSE,
)

WORDS: tuple[str, ...] = (
    "You solve small tasks with a shell.",
    "shell(command)",
    "Summarise what you know.",
    "cat ",
    "grep -H . ",
    "grep -Hc . ",
    "set ",
    ";echo ",
    "echo ",
    ";mv ",
    "mv ",
    ";sed -i",
    "sed -i",
    " -e s/",
    "=.*/",
    "$1",
    " $2",
    "-$2",
    " >",
    "ok",
    "Join ",
    "Count lines of ",
    "Rename ",
    "Set ",
    "Make ",
    " and ",
    " to ",
    " in ",
    " into ",
    " print ",
    " by ",
    "Also: ",
    "Notes: ",
    "Helper: ",
    "sh: 1: ",
    ": No such file or directory\n",
    ": not found\n",
)
