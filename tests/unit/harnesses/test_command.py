"""Any command line as a harness."""

import pytest

from gyre_hpc.errors import UserError
from gyre_hpc.harnesses import create_harness
from gyre_hpc.harnesses.base import Launch, Start
from gyre_hpc.harnesses.command import words

HARNESS = create_harness("command")


def launch(command: object, **options: object) -> Launch:
    start = Start(
        gateway_url="http://h:1/e/x", api_key="key", instruction="Say {model} & $HOME", workspace="/w", home="/h",
        options={"command": command, **options},
    )  # fmt: skip
    return HARNESS.launch(start)


def test_placeholders_are_filled_once_and_other_braces_stay() -> None:
    started = launch(["/bin/tool", '--json={"a": {1}}', "{instruction}", "{base_url}|{workspace}|{home}|{model}|{nothing}", "{api_key}"])
    assert started.argv == (
        "/bin/tool",
        '--json={"a": {1}}',
        "Say {model} & $HOME",
        "http://h:1/e/x/v1|/w|/h|gyre-model|{nothing}",
        "key",
    )


def test_a_string_is_split_as_a_shell_would_and_no_shell_runs_it() -> None:
    assert launch("tool --task '{instruction}' \"a b\" $X").argv == ("tool", "--task", "Say {model} & $HOME", "a b", "$X")


def test_the_environment_takes_placeholders_too() -> None:
    started = launch("tool", environment={"OPENAI_API_KEY": "{api_key}", "URL": "{base_url}", "N": 1})
    assert (started.environment["OPENAI_API_KEY"], started.environment["URL"], started.environment["N"]) == (
        "key",
        "http://h:1/e/x/v1",
        "1",
    )
    assert started.environment["HOME"] == "/h"


@pytest.mark.parametrize(
    ("protocol", "url"), [("messages", "http://h:1/e/x"), ("responses", "http://h:1/e/x/v1"), ("", "http://h:1/e/x/v1")]
)
def test_the_base_url_is_what_clients_of_the_protocol_expect(protocol: str, url: str) -> None:
    assert launch("{base_url}", protocol=protocol).argv == (url,)


@pytest.mark.parametrize("command", ["", "   ", "a 'b", [], None, {"a": 1}, [["a"]], 3])
def test_what_is_no_command_line_is_refused(command: object) -> None:
    with pytest.raises(UserError, match="harness.command"):
        words(command)


def test_a_wrong_protocol_and_a_relative_path_are_refused() -> None:
    with pytest.raises(UserError, match="harness.protocol"):
        HARNESS.check({"command": "ls", "protocol": "grpc"})
    with pytest.raises(UserError, match="harness.readable"):
        HARNESS.check({"command": "ls", "readable": ["bin/tool"]})
    HARNESS.check({"command": "ls", "protocol": "messages", "readable": ["/opt/tool"], "max_calls": 0})
