"""Where a template comes from: `own` (the tokenizer's folder), `chatml` (built in), or a .jinja file."""

from pathlib import Path
from typing import Any

from gyre_hpc.chat.chatml import CHATML
from gyre_hpc.errors import UserError

_FIELD = "model.template"


def template_sources(template: str, folder: Path, config: dict[str, Any]) -> tuple[str, str]:
    """Sources for prompts without and with tools; the second is empty when one does for both.

    `config`: the folder's tokenizer_config.json. Raises UserError.
    """
    if template == "chatml":
        return CHATML, ""
    if template == "own":
        return _own(folder, config)
    path = Path(template).expanduser()
    if path.suffix != ".jinja":
        raise UserError(_FIELD, template, "with a tokenizer from a folder: 'own' (its own template), 'chatml', or a .jinja file")
    return _read(path, template), ""


def _own(folder: Path, config: dict[str, Any]) -> tuple[str, str]:
    named = {path.stem: path for path in sorted((folder / "additional_chat_templates").glob("*.jinja"))}
    if (path := folder / "chat_template.jinja").is_file():
        return _read(path, "own"), _read(named["tool_use"], "own") if "tool_use" in named else ""
    found = config.get("chat_template")
    if isinstance(found, list):
        found = {str(entry["name"]): str(entry["template"]) for entry in found}
    if isinstance(found, dict):
        default, with_tools = found.get("default", ""), found.get("tool_use", "")
        if not default:
            raise UserError(_FIELD, "own", f"{folder} has no template named default (only {', '.join(found)}); name a .jinja file")
        return default, with_tools
    if not isinstance(found, str):
        raise UserError(_FIELD, "own", f"{folder} has no chat template; take 'chatml' or name a .jinja file")
    return found, ""


def _read(path: Path, value: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UserError(_FIELD, value, f"{path} cannot be read ({error})") from error
