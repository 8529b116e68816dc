"""The agent of the benchmark: some calls in one conversation, whatever the answers are. Standard library only.

    python talker.py CLIENT_FOLDER CALLS MAX_OUTPUT_TOKENS INSTRUCTION

A timed engine draws its tokens evenly, so an answer has as many as chance gives it, and no command in it makes sense: this agent runs
none and asks again. CLIENT_FOLDER: where chat_client.py is.
"""

import importlib
import os
import sys

SYSTEM = "You think aloud."
GO_ON = "Go on with step {}."


def main(argv: list[str]) -> int:
    """Exit code."""
    client_folder, num_calls, max_output_tokens, instruction = argv
    sys.path.insert(0, client_folder)
    client = importlib.import_module("chat_client").ChatClient(
        os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"], int(max_output_tokens), True
    )
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": instruction}]
    for step in range(1, int(num_calls) + 1):
        answer, _ = client.complete(messages, [], "main")
        messages += [{"role": "assistant", "content": answer.get("content") or ""}, {"role": "user", "content": GO_ON.format(step)}]
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
