"""mini-swe-agent: Chat Completions, not streamed, one linear conversation."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gyre_hpc.harnesses.base import MODEL, Harness, Installation, Installer, Launch, Start
from gyre_hpc.harnesses.place import program_of
from gyre_hpc.harnesses.surroundings import LONGEST_SILENCE_MS, environment, files


class MiniSweAgent(Harness):
    """Lives in a Python environment of its own; started without the folder it works in on its module path."""

    name = "mini_swe_agent"
    version = "2.4.6"
    versions = ("2.4.6",)
    protocol = "chat_completions"
    follows = frozenset({"max_calls", "max_output_tokens"})
    least_context = 550
    compaction_rewrites_history = False

    def installation(self, version: str) -> Installation:
        self._known(version)
        return Installation(
            installer=Installer.pip,
            packages=(f"mini-swe-agent=={version}", "litellm==1.110.2"),
            program="bin/python",
            licence="MIT",
            megabytes=600,
        )

    def launch(self, start: Start) -> Launch:
        assert start.installed is not None
        python = Path(program_of(self, start))
        settings = ["mini.yaml", f"model.model_kwargs.timeout={LONGEST_SILENCE_MS // 1000}"]
        if start.options["max_output_tokens"]:
            settings.append(f"model.model_kwargs.max_tokens={start.options['max_output_tokens']}")
        if start.options.get("max_calls"):
            settings.append(f"agent.step_limit={start.options['max_calls']}")
        argv = [
            str(python),
            "-I",
            "-m",
            "minisweagent.run.mini",
            f"--model=openai/{MODEL}",
            "--yolo",
            "--exit-immediately",
            "--cost-limit=0",
        ]
        argv += [f"--config={setting}" for setting in settings]
        argv += [f"--output={start.home}/trajectory.json", f"--task={start.instruction}"]
        own = {
            "OPENAI_API_BASE": f"{start.gateway_url}/v1",
            "OPENAI_API_KEY": start.api_key,
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "MSWEA_COST_TRACKING": "ignore_errors",
            "MSWEA_CONFIGURED": "true",
            "MSWEA_SILENT_STARTUP": "1",
        }
        # The environment's interpreter is a link to the one it was made with, whose library must be readable too.
        return Launch(
            argv=tuple(argv),
            environment=environment(start, **own),
            readable=(start.installed, python.resolve().parent.parent),
            files=files(),
        )

    def role(self, headers: Mapping[str, str], body: Mapping[str, Any]) -> str:
        return "main"

    def thread(self, headers: Mapping[str, str], body: Mapping[str, Any]) -> str:
        return "main"
