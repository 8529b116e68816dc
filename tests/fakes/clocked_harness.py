"""A harness that says the time and random names in everything it sends. `python clocked_harness.py URL KEY INSTRUCTION [stray]`.

With `stray` what its tools find is another thing each time, too. It needs nothing but Python.
"""

import json
import random
import sys
import time
import urllib.request
import uuid
from typing import Any

CALLS = 6


def say(text: str) -> str:
    now = time.strftime("%Y-%m-%d %H:%M:%S")
    return f"{text}\n[{now}] request {uuid.uuid4()} took {random.random():.3f} s, pid {random.randrange(1000, 9999)}"


def ask(url: str, key: str, messages: list[dict[str, Any]]) -> dict[str, Any]:
    body = json.dumps({"model": "gyre-model", "messages": messages, "user": uuid.uuid4().hex}).encode()
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(f"{url}/chat/completions", body, headers), timeout=600) as response:
        return dict(json.load(response)["choices"][0]["message"])


def main(url: str, key: str, instruction: str, stray: bool) -> None:
    messages: list[dict[str, Any]] = [{"role": "system", "content": say("You work.")}, {"role": "user", "content": say(instruction)}]
    for number in range(CALLS):
        answer = ask(url, key, messages)
        messages.append({name: answer[name] for name in ("role", "content", "tool_calls") if answer.get(name)} | {"role": "assistant"})
        found = f"result {number}" + (f" is word{random.choice('ghijklmnopqrstuvwxyz') * 3}" if stray else "")
        calls = answer.get("tool_calls") or []
        messages += [{"role": "tool", "tool_call_id": call["id"], "content": say(found)} for call in calls]
        if not calls:
            messages.append({"role": "user", "content": say(found)})


if __name__ == "__main__":
    main(*sys.argv[1:4], stray="stray" in sys.argv[4:])
