"""commands/ as supervisor-0 reads it: whatever lies there is an order, unreadable, or none of its business."""

import asyncio
import json
import os
import stat
from pathlib import Path

import msgspec
import pytest

from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.machines.supervision import ReadCommands, WriteAnswer
from gyre_hpc.protocol.people import Answer, Command, CommandKind, Unreadable, Wish
from gyre_hpc.supervisor.people import People


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path)
    folder.alive(3).parent.mkdir(parents=True)
    return folder


def read(folder: RunFolder) -> tuple[Command | Unreadable, ...]:
    return asyncio.run(People(folder, 3).read("", ReadCommands(), lambda item: None))


def test_orders_without_an_answer_are_read_oldest_first(folder: RunFolder):
    assert read(folder) == ()
    folder.commands.mkdir()
    folder.command("200-b").write_text('{"kind": "stacks", "process": "cell-1"}')
    folder.command("100-a").write_bytes(msgspec.json.encode(Wish(CommandKind.stop, 3, reason="enough")))
    folder.command("300-c.json").with_suffix(".tmp").write_text("{")
    stacks = Command("200-b", Wish(CommandKind.stacks, process="cell-1"))
    assert read(folder) == (Command("100-a", Wish(CommandKind.stop, 3, reason="enough")), stacks)
    asyncio.run(People(folder, 3).answer("", WriteAnswer("100-a", Answer(3, True, "done")), lambda item: None))
    assert read(folder) == (stacks,)
    answer = json.loads(folder.answer("100-a").read_text())
    assert (answer["is_done"], answer["text"]) == (True, "done") and answer["time"] > 0
    assert stat.S_IMODE(folder.answer("100-a").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"kind": "dance"}', '{"kind": "stop", "attempt": "x"}', "\xff\xfe", "{" * 70000, '"stop"']
)
def test_what_is_no_order_is_unreadable_with_a_reason(folder: RunFolder, text: str):
    folder.commands.mkdir()
    folder.command("1-a").write_bytes(text.encode("latin-1"))
    (found,) = read(folder)
    assert isinstance(found, Unreadable) and found.id == "1-a" and found.reason


def test_what_is_no_file_hangs_nobody_and_strange_names_are_left_alone(folder: RunFolder):
    folder.commands.mkdir()
    os.mkfifo(folder.command("1-pipe"))
    folder.command("2-folder").mkdir()
    folder.command("3-link").symlink_to("/nowhere")
    folder.command(".hidden").touch()
    folder.command("a b").touch()
    folder.command("x" * 100).touch()
    assert [(type(found), found.id) for found in read(folder)] == [(Unreadable, "1-pipe"), (Unreadable, "2-folder")]


def test_each_look_is_a_sign_of_life(folder: RunFolder):
    read(folder)
    os.utime(folder.alive(3), (5.0, 5.0))
    read(folder)
    assert folder.alive(3).stat().st_mtime > 1e9 and folder.alive(3).stat().st_size == 0
