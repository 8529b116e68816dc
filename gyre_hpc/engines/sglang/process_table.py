"""A server's processes among all others: those that were started for a folder, and its ranks."""

import os

from gyre_hpc.observability.process_tree import Process, descendants, identify

MARK = "GYRE_SGLANG_FOLDER"
"""Environment variable of a keeper and of all that it starts: the folder they belong to."""
_RANK = "sglang::"
"""How the titles of SGLang's processes begin (scheduler, detokenizer); the kernel shows their first 15 bytes."""


def marked(folder: str) -> list[Process]:
    """This user's processes that were started for `folder`, this one excepted. One that has changed its title hides its environment."""
    wanted = f"{MARK}={folder}".encode()
    found: list[Process] = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        process = identify(int(name))
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                belongs = wanted in file.read().split(b"\0")
        except OSError:
            continue
        if belongs and process is not None:
            found.append(process)
    return found


def ranks_below(pid: int) -> dict[Process, str]:
    """Those processes of a server without which it is lost, by title; all of them are there once it answers."""
    found: dict[Process, str] = {}
    for below in descendants(pid):
        process, title = identify(below), _title(below)
        if process is not None and title.startswith(_RANK):
            found[process] = title
    return found


def _title(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().rstrip("\n")
    except (FileNotFoundError, ProcessLookupError):
        return ""
