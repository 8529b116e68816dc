"""commands/ as supervisor-0 reads it: whatever lies there is an order, unreadable, or none of its business."""

import asyncio
import contextlib
import json
import os
import socket
import stat
from collections.abc import Callable, Iterator
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
    "text",
    [
        "", "{", "[]", '{"kind": "dance"}', '{"kind": "stop", "attempt": "x"}', "\xff\xfe", "{" * 70000, '"stop"',
        '{"kind": "stop", "x": ' + "[" * 60000,
    ],
    ids=range(9),
)  # fmt: skip
def test_what_is_no_order_is_unreadable_with_a_reason(folder: RunFolder, text: str):
    folder.commands.mkdir()
    folder.command("1-a").write_bytes(text.encode("latin-1"))
    (found,) = read(folder)
    assert isinstance(found, Unreadable) and found.id == "1-a" and found.reason


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _loop(path: Path) -> None:
    path.symlink_to(path)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(path))  # such an address is short


def _link_to_an_order(path: Path) -> None:
    (path.parent.parent / "stop").write_text('{"kind": "stop"}')
    path.symlink_to(path.parent.parent / "stop")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (_pipe, "it is a pipe"),
        (Path.mkdir, "it is a folder"),
        (_loop, "it is a symbolic link"),
        (_link_to_an_order, "it is a symbolic link"),
        (lambda path: path.symlink_to("/nowhere"), "it is a symbolic link"),
        (lambda path: path.symlink_to("/dev/zero"), "it is a symbolic link"),
        (_socket, "it is a socket"),
        (lambda path: path.write_bytes(b"{" * 70000), "it has more than 65536 bytes"),
    ],
)
def test_what_is_no_order_is_told_what_it_is_and_hangs_nobody(
    folder: RunFolder, make: Callable[[Path], object], said: str, monkeypatch: pytest.MonkeyPatch
):
    folder.commands.mkdir()
    monkeypatch.chdir(folder.commands)
    make(folder.command("1-a"))
    assert read(folder) == (Unreadable("1-a", said),)


def test_an_order_that_its_supervisor_may_not_read_is_told_so(folder: RunFolder, monkeypatch: pytest.MonkeyPatch):
    folder.commands.mkdir()
    folder.command("1-a").write_text('{"kind": "stop"}')
    folder.command("1-a").chmod(0)
    monkeypatch.chdir(folder.root)  # a way that nobody may go
    with _nobody_if_root():
        found = read(RunFolder("."))
    assert found == (Unreadable("1-a", "its supervisor may not read it (Permission denied)"),)


@contextlib.contextmanager
def _nobody_if_root() -> Iterator[None]:
    """root reads everything. The folder of the working directory is nobody's from now on."""
    if os.geteuid() != 0:
        yield
        return
    for path in (".", "commands"):
        os.chown(path, 65534, 65534)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_pipe_that_comes_between_the_look_and_the_opening_hangs_nobody(folder: RunFolder, monkeypatch: pytest.MonkeyPatch):
    folder.commands.mkdir()
    order = folder.command("1-a")
    order.write_text('{"kind": "stop"}')
    opened = os.open

    def late(path: str | Path, *args: int) -> int:
        if path == order:
            order.unlink()
            os.mkfifo(order)
        return opened(path, *args)

    monkeypatch.setattr(os, "open", late)
    assert read(folder) == (Unreadable("1-a", "it is a pipe"),)


def test_strange_names_are_left_alone(folder: RunFolder):
    folder.commands.mkdir()
    folder.command(".hidden").touch()
    folder.command("a b").touch()
    folder.command("x" * 100).touch()
    assert read(folder) == ()


def test_each_look_is_a_sign_of_life(folder: RunFolder):
    read(folder)
    os.utime(folder.alive(3), (5.0, 5.0))
    read(folder)
    assert folder.alive(3).stat().st_mtime > 1e9 and folder.alive(3).stat().st_size == 0
