"""shell_agent: a small terminal agent. Standard library only; it speaks OpenAI Chat Completions to OPENAI_BASE_URL and has one
tool, `shell`, which runs a command in the current folder.

    python -E -S shell_agent_program.py [--max-calls N] [--context-tokens N] [--max-output-tokens N] [--stream] INSTRUCTION

Each line `Also: ...` of the instruction goes to a sub-agent with a conversation of its own (header X-Agent-Id); its report joins
the main instruction. A history beyond the limit is replaced by a summary that the model writes in a call of its own. A failed
request is sent again, byte for byte. Exit code 0: the agent finished; 3: it ran out of calls; 4: the API refused or stayed away.

One process is started per task, so start-up counts: `http.client`, `json`, `subprocess` cost 80 ms of CPU, what is used here 5 ms.
"""

from __future__ import annotations

import os
import select
import sys
import time

from chat_client import ApiError, ChatClient  # beside this file

TYPE_CHECKING = False  # as typing has it; importing typing costs 5 ms
if TYPE_CHECKING:
    from typing import Any

    Message = dict[str, Any]

SYSTEM = "You solve small tasks with a shell."
SUMMARISE = "Summarise what you know."
DELEGATE_MARK = "\nAlso: "
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "shell",
            "description": "Run a command with sh in the working folder and return what it prints.",
            "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
        },
    }
]
OUTPUT_CHARS = 130
COMMAND_TIMEOUT_S = 10.0
REPORT_CHARS = 80


class OutOfCalls(Exception):
    """An agent used up its calls."""


class Agent:
    """One conversation: system prompt, instruction, and what follows."""

    def __init__(self, client: ChatClient, name: str, instruction: str, max_calls: int, context_tokens: int) -> None:
        self.client = client
        self.name = name
        self.instruction = instruction
        self.calls_left = max_calls
        self.context_tokens = context_tokens
        self.size = 0
        self.messages = self._opening("")

    def work(self) -> str:
        """Call the model and run its commands until it answers without one. Return that answer."""
        while True:
            if self.size > self.context_tokens and len(self.messages) > 2:
                self._compact()
            answer = self._call(self.messages)
            self.messages.append(answer)
            if not answer.get("tool_calls"):
                return str(answer.get("content") or "")
            for call in answer["tool_calls"]:
                result = self._run_tool(call)
                self.size += len(result) // 2
                self.messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})

    def _compact(self) -> None:
        summary = self._call([*self.messages, {"role": "user", "content": SUMMARISE}])
        self.messages = self._opening(summary.get("content") or "")
        self.size = 0

    def _opening(self, notes: str) -> list[Message]:
        text = f"{self.instruction}\nNotes: {notes}" if notes else self.instruction
        return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": text}]

    def _call(self, messages: list[Message]) -> Message:
        if self.calls_left <= 0:
            raise OutOfCalls(self.name)
        self.calls_left -= 1
        answer, total_tokens = self.client.complete(messages, TOOLS, self.name)
        self.size = total_tokens
        return answer

    def _run_tool(self, call: Message) -> str:
        function = call["function"]
        if function["name"] != "shell":
            return f"no tool {function['name']}"
        arguments = self.client.parse(function["arguments"])
        command = arguments.get("command") if isinstance(arguments, dict) else None
        return run_command(command) if isinstance(command, str) else "no command"


def run_command(command: str) -> str:
    """What `sh -c command` prints, cut to OUTPUT_CHARS; everything it started is ended with it."""
    if "\0" in command:
        return "bad command"
    reading, writing = os.pipe()
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, writing, 1),
        (os.POSIX_SPAWN_DUP2, writing, 2),
    ]
    environment = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": os.getcwd(), "LC_ALL": "C"}
    pid = os.posix_spawn("/bin/sh", ["sh", "-c", command], environment, file_actions=actions, setpgroup=0)
    os.close(writing)
    deadline = time.monotonic() + COMMAND_TIMEOUT_S
    output = _read_until(reading, deadline)
    os.close(reading)
    _end(pid, deadline)
    return output.decode("utf-8", "replace")[:OUTPUT_CHARS]


def _end(pid: int, deadline: float) -> None:
    """Let the shell finish what it does after closing its output, then end it and all it left behind."""
    while not os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) and time.monotonic() < deadline:
        time.sleep(0.002)
    try:  # noqa: SIM105 - contextlib costs 3 ms at every start
        os.killpg(pid, 9)
    except OSError:
        pass
    os.waitpid(pid, 0)


def _read_until(reading: int, deadline: float) -> bytes:
    """Bytes printed until everyone closed the pipe or the deadline passed; only the first are kept, the rest is drained."""
    kept = b""
    poll = select.poll()
    poll.register(reading, select.POLLIN | select.POLLHUP)
    while (left := deadline - time.monotonic()) > 0:
        if not poll.poll(left * 1000):
            return kept + b"\ntimeout"
        data = os.read(reading, 65536)
        if not data:
            return kept
        kept = (kept + data)[: 4 * OUTPUT_CHARS]
    return kept + b"\ntimeout"


def parse_options(argv: list[str]) -> tuple[dict[str, int], bool, str]:
    """Options by name, and the instruction."""
    options = {"max-calls": 6, "context-tokens": 450, "max-output-tokens": 64}
    stream = False
    place = 0
    while place < len(argv) - 1:
        if argv[place] == "--stream":
            stream = True
            place += 1
            continue
        name = argv[place].removeprefix("--")
        if name not in options:
            raise SystemExit(f"unknown option {argv[place]}")
        options[name] = int(argv[place + 1])
        place += 2
    if place != len(argv) - 1:
        raise SystemExit("give the instruction as the last argument")
    return options, stream, argv[place]


def main(argv: list[str]) -> int:
    """Run the agent; return the exit code."""
    options, stream, instruction = parse_options(argv)
    client = ChatClient(os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"], options["max-output-tokens"], stream)
    first, *delegated = instruction.split(DELEGATE_MARK)
    limits = (options["max-calls"], options["context-tokens"])
    try:
        for number, part in enumerate(delegated, start=1):
            first += f"\nHelper: {delegate(client, number, part, limits)}"
        print(Agent(client, "main", first, *limits).work())
    except OutOfCalls:
        return 3
    except ApiError as error:
        print(error, file=sys.stderr)
        return 4
    return 0


def delegate(client: ChatClient, number: int, part: str, limits: tuple[int, int]) -> str:
    """The report of a sub-agent; running out of calls ends the sub-agent, not the task."""
    try:
        return Agent(client, f"sub-{number}", part, *limits).work()[:REPORT_CHARS]
    except OutOfCalls:
        return "failed"


if __name__ == "__main__":
    # os._exit: nothing is left to flush or to free but the interpreter itself, and that costs 2 ms.
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
