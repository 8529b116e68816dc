"""gyre cells: the cell map on the terminal."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from gyre_hpc.cli.commands import run

NODES = "nodes:\n  - {names: 'g[1-3]', kind: h100, devices: 4}\n  - {names: c1}\n"
TOPOLOGY = "SwitchName=leaf Nodes=g[1-3]\n"


def test_the_map_shows_cells_leftovers_and_nodes_without_devices(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "nodes").write_text(NODES)
    (tmp_path / "topology").write_text(TOPOLOGY)
    assert run(["cells", "--nodes", str(tmp_path / "nodes"), "--topology", str(tmp_path / "topology"), "--ranks", "8"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[1] == ["cell-0", "h100", "g[1-2]", "8", "=", "2", "x", "4", "0-3", "leaf"]
    assert ["g3", "h100", "0-3"] in [line[:3] for line in lines]
    assert lines[-1] == ["h100:", "1", "cell", "of", "8", "ranks,", "4", "devices", "left", "over"]
    assert any(line[-1:] == ["c1"] for line in lines)


def test_json_from_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(sys, "stdin", io.StringIO("NodeName=n1 Gres=gpu:h100:3\n"))
    assert run(["cells", "--nodes", "-", "--ranks", "2", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["cells"] == [
        {"name": "cell-0", "kind": "h100", "switch": "", "height": 0, "nodes": ["n1"], "ranks": [["n1", 0], ["n1", 1]]}
    ]
    assert told["leftovers"][0]["reason"] == "too_few_on_node"


def test_bad_input_is_one_line_and_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "nodes").write_text(NODES)
    for arguments in (
        ["--nodes", str(tmp_path / "nowhere"), "--ranks", "1"],
        ["--nodes", str(tmp_path / "nodes"), "--ranks", "0"],
        ["--nodes", str(tmp_path / "nodes"), "--ranks", "1", "--kind", "b200"],
        ["--nodes", "-", "--topology", "-", "--ranks", "1"],
    ):
        assert run(["cells", *arguments]) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1


def test_it_loads_neither_torch_nor_the_configuration(tmp_path: Path):
    (tmp_path / "nodes").write_text(NODES)
    program = (
        "import sys\nfrom gyre_hpc.cli.commands import run\n"
        f"run(['cells', '--nodes', {str(tmp_path / 'nodes')!r}, '--ranks', '4'])\n"
        "print([name for name in ('torch', 'hydra', 'omegaconf', 'aiohttp', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.rstrip().endswith("[]")
