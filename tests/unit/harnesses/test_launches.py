"""How each harness is started: exactly what it needs to work headless, offline, patiently, within its folders."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from gyre_hpc.config.compose import compose_config
from gyre_hpc.errors import UserError
from gyre_hpc.harnesses import HARNESSES, create_harness
from gyre_hpc.harnesses.base import Harness, Installer, Launch, Start
from gyre_hpc.harnesses.options import options_of
from gyre_hpc.harnesses.place import installed_folder

KEY, URL, HOME, WORKSPACE = "secret-key", "http://127.0.0.1:9/e/train-0-0-0", "/home/agent", "/workspace"
CACHE = Path("/cache")
FETCHED = [name for name in HARNESSES if create_harness(name).installation(create_harness(name).version).installer is not Installer.bundled]
TWO_HOURS_MS = 7_200_000


def launch(name: str, *overrides: str, instruction: str = "Fix it.") -> Launch:
    config = compose_config([f"harness={name}", *overrides])
    harness, options = create_harness(name), options_of(config)
    harness.check(options)
    return harness.launch(
        Start(
            gateway_url=URL,
            api_key=KEY,
            instruction=instruction,
            workspace=WORKSPACE,
            home=HOME,
            installed=installed_folder(CACHE, harness, harness.version_of(options)),
            options=options,
        )
    )


def values(name: str, *overrides: str) -> dict[str, Any]:
    """The settings file of a harness that has one."""
    (text,) = [text for path, text in launch(name, *overrides).files.items() if path.endswith((".json", ".toml"))]
    return tomllib.loads(text) if name == "codex" else json.loads(text)


@pytest.mark.parametrize("name", FETCHED)
def test_an_installed_harness_starts_from_its_folder_with_its_home_and_keeps_the_key_off_its_command_line(name: str) -> None:
    started = launch(name)
    folder = CACHE / "harnesses" / f"{name}-{create_harness(name).version}"
    assert folder in started.readable
    assert any(word.startswith(f"{folder}/") for word in started.argv)
    assert started.environment["HOME"] == HOME
    # Two executions must not meet in /tmp, where there is no sandbox.
    assert started.environment["TMPDIR"] == f"{HOME}/tmp" and "tmp/.keep" in started.files
    assert KEY in started.environment.values()
    assert not any(KEY in word for word in (*started.argv, *started.files.values()))
    assert URL in str(started.environment) + str(started.files)
    assert not any(path.startswith("/") or ".." in path for path in started.files)


@pytest.mark.parametrize("name", FETCHED)
@pytest.mark.parametrize("instruction", ["--help", "-x", "/clear the table", "two words 'and' \"quotes\"\n$HOME `x` \\", "{home}"])
def test_an_instruction_is_never_taken_for_anything_else(name: str, instruction: str) -> None:
    started = launch(name, instruction=instruction)
    if name == "opencode":
        assert instruction in started.files.values() and instruction not in started.argv
        return
    last = started.argv[-1].partition("=")[2] if started.argv[-1].startswith("--") and started.argv[-2] != "--" else started.argv[-1]
    assert last.removeprefix("\n") == instruction
    assert started.argv[-2] == "--" or started.argv[-1].startswith(("--prompt=", "--task="))
    if name in ("claude_code", "qwen_code"):
        assert last.startswith("\n") == instruction.startswith("/")


def test_claude_code_is_told_where_to_go_how_long_to_wait_and_to_keep_quiet_otherwise() -> None:
    told = launch("claude_code", "harness.context_tokens=300").environment
    assert told["ANTHROPIC_BASE_URL"] == URL
    assert (told["ANTHROPIC_AUTH_TOKEN"], told.get("ANTHROPIC_API_KEY")) == (KEY, None)
    assert told["CLAUDE_STREAM_IDLE_TIMEOUT_MS"] == told["API_TIMEOUT_MS"] == str(TWO_HOURS_MS)
    assert told["API_FORCE_IDLE_TIMEOUT"] == told["CLAUDE_CODE_ATTRIBUTION_HEADER"] == "0"
    assert told["IS_SANDBOX"] == told["CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC"] == "1"
    assert told["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] == told["CLAUDE_CODE_AUTO_COMPACT_WINDOW"] == "300"
    assert "CLAUDE_CODE_MAX_OUTPUT_TOKENS" not in told
    # It makes a broken stream the end of the run.
    assert "CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK" not in told


def test_claude_code_can_be_made_small() -> None:
    small = launch(
        "claude_code", "harness.bare=true", "harness.tools=[Bash,Edit]", "harness.system_prompt=You code.",
        "harness.max_output_tokens=100", "harness.max_calls=3",
    )  # fmt: skip
    assert {"--bare", "--tools=Bash,Edit", "--system-prompt=You code.", "--max-turns=3"} <= set(small.argv)
    assert (small.environment["ANTHROPIC_API_KEY"], small.environment.get("ANTHROPIC_AUTH_TOKEN")) == (KEY, None)
    assert small.environment["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] == "100"


def test_versions_have_folders_of_their_own() -> None:
    newer = launch("claude_code", "harness.version=2.1.332")
    assert newer.argv[0].startswith("/cache/harnesses/claude_code-2.1.332/")
    with pytest.raises(UserError, match=r"harness.version='2.0': claude_code is known in: 2.1.220, 2.1.332"):
        launch("claude_code", "harness.version='2.0'")


def test_codex_finds_its_provider_its_window_and_no_tool_that_a_server_would_carry_out() -> None:
    settings = values("codex", "harness.context_tokens=400")
    provider = settings["model_providers"][settings["model_provider"]]
    assert provider["base_url"] == f"{URL}/v1" and provider["wire_api"] == "responses"
    assert provider["stream_idle_timeout_ms"] == TWO_HOURS_MS
    assert launch("codex").environment[provider["env_key"]] == KEY
    assert (settings["model_context_window"], settings["model_auto_compact_token_limit"]) == (400, 360)
    assert (settings["web_search"], settings["approval_policy"], settings["sandbox_mode"]) == ("disabled", "never", "danger-full-access")
    assert settings["features"] == {"view_image": False}
    assert settings["model"] == "gyre-model" and not settings["check_for_update_on_startup"]


def test_qwen_code_waits_and_knows_its_window() -> None:
    started, settings = launch("qwen_code"), values("qwen_code", "harness.context_tokens=400", "harness.max_output_tokens=50")
    assert settings["model"]["generationConfig"] == {
        "timeout": TWO_HOURS_MS,
        "contextWindowSize": 400,
        "samplingParams": {"max_tokens": 50},
    }
    assert started.environment["QWEN_STREAM_IDLE_TIMEOUT_MS"] == str(TWO_HOURS_MS)
    assert started.environment["OPENAI_BASE_URL"] == f"{URL}/v1" and started.environment["OPENAI_API_KEY"] == KEY
    assert "samplingParams" not in values("qwen_code")["model"]["generationConfig"]
    assert "--max-session-turns=7" in launch("qwen_code", "harness.max_calls=7").argv
    assert 53 in create_harness("qwen_code").finished_codes


def test_opencode_knows_its_provider_and_limits() -> None:
    settings = values("opencode", "harness.context_tokens=400", "harness.max_calls=9")
    provider, model = settings["provider"]["gyre"], settings["model"].partition("/")[2]
    assert provider["options"]["baseURL"] == f"{URL}/v1"
    assert provider["models"][model]["limit"] == {"context": 400, "output": 100}
    assert settings["agent"]["build"]["steps"] == 9
    assert values("opencode", "harness.max_output_tokens=70")["provider"]["gyre"]["models"][model]["limit"]["output"] == 70


def test_mini_swe_agent_runs_apart_from_where_it_works() -> None:
    started = launch("mini_swe_agent", "harness.max_calls=5", "harness.max_output_tokens=50")
    assert started.argv[1:4] == ("-I", "-m", "minisweagent.run.mini")
    assert {"--config=mini.yaml", "--config=agent.step_limit=5", "--config=model.model_kwargs.max_tokens=50"} <= set(started.argv)
    assert started.environment["LITELLM_LOCAL_MODEL_COST_MAP"] == "True"
    assert started.environment["OPENAI_API_BASE"] == f"{URL}/v1"


@pytest.mark.parametrize("name", [name for name in HARNESSES if name != "command"])
def test_variables_of_the_configuration_lie_above_the_harness_own(name: str) -> None:
    started = launch(name, "+harness.environment.PATH=/mine", "+harness.environment.DEBUG='1'")
    assert (started.environment["PATH"], started.environment["DEBUG"]) == ("/mine", "1")


@pytest.mark.parametrize("name", [name for name in HARNESSES if name not in ("shell_agent", "command")])
def test_the_window_is_the_models_unless_it_is_said(name: str) -> None:
    config = compose_config([f"harness={name}"])
    assert config.harness.context_tokens == 0
    assert options_of(config)["context_tokens"] == config.model.max_context


@pytest.mark.parametrize(
    ("name", "override", "field"),
    [
        ("codex", "harness.max_calls=3", "harness.max_calls"),
        ("codex", "harness.max_output_tokens=3", "harness.max_output_tokens"),
        ("command", "harness.max_calls=3", "harness.max_calls"),
        ("opencode", "harness.bare=true", "harness.bare"),
        ("shell_agent", "harness.tools=[Bash]", "harness.tools"),
        ("shell_agent", "harness.max_calls=0", "harness.max_calls"),
        ("claude_code", "harness.command=ls", "harness.command"),
        ("claude_code", "harness.protocol=messages", "harness.protocol"),
    ],
)
def test_a_choice_that_a_harness_does_not_have_is_refused(name: str, override: str, field: str) -> None:
    with pytest.raises(UserError) as caught:
        launch(name, override, *(["harness.command=ls"] if name == "command" else []))
    assert caught.value.field == field


@pytest.mark.parametrize("name", sorted(HARNESSES))
def test_every_harness_says_what_it_is(name: str) -> None:
    harness: Harness = create_harness(name)
    assert harness.name == name and harness.version in harness.versions
    assert harness.protocol in ("chat_completions", "responses", "messages")
    for version in harness.versions:
        made = harness.installation(version)
        assert made.installer is Installer.bundled or (made.packages and made.program and made.licence and made.megabytes)
    with pytest.raises(UserError, match="harness.version"):
        harness.installation("0")
