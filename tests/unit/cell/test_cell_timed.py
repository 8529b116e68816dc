"""Timed cells: the same life without torch and without torchrun; and scripted agents for the warm start."""

import json
import random
import subprocess
import sys
import urllib.request
from pathlib import Path

from gyre_hpc.chat import create_chat_format
from gyre_hpc.config.schema import ClusterConfig, EngineKind, TrainerKind
from gyre_hpc.protocol.identity import Role, Version
from gyre_hpc.protocol.to_batch import CellState, CommitPhase
from gyre_hpc.protocol.to_cell import ApplyOrder, CommitOrder
from gyre_hpc.suites import create_scripted_agent
from tests.fakes.cell_stage import TOKEN, Stage, tiny_config
from tests.fakes.live_run import REPOSITORY, wait_for

V0, V1 = Version(0, 0), Version(0, 1)
TWO = ("cell-0", "cell-1")


def timed_config():
    config = tiny_config(cluster=ClusterConfig(cells=2))
    config.engine.kind, config.trainer.kind = EngineKind.timed, TrainerKind.timed
    config.engine.time_scale = 0.01
    return config


def has_torch(pid: int) -> bool:
    return "libtorch" in Path(f"/proc/{pid}/maps").read_text()


def order(stage: Stage, cell: str, **fields: object) -> None:
    sources = () if cell == "cell-0" else (stage.report("cell-0").snapshot_url,)
    given = {"term": 2, "role": Role.train, "is_core": cell == "cell-0", "sources": sources, "version": V0, "update": 0}
    stage.order(cell, **given | fields)


def test_two_timed_cells_make_an_update_together_without_torch(tmp_path: Path):
    with Stage(tmp_path, timed_config()) as stage:
        for cell in TWO:
            stage.start(cell)
        stage.wait_registered(*TWO)
        order(stage, "cell-0", term=1, role=Role.rollout)
        stage.until("cell-0", lambda report: report.state is CellState.rollout, "serving")
        assert len(stage.generate("cell-0")["output_ids"]) == 8
        order(stage, "cell-0", leases=stage.leases(V0, "0:0"))
        stage.until("cell-0", lambda report: len(report.accumulated) == 1, "the core's half")
        order(stage, "cell-1", leases=stage.leases(V0, "0:1"))
        stage.until("cell-1", lambda report: len(report.accumulated) == 1, "the satellite's half")
        order(stage, "cell-0", commit=CommitOrder(1, TWO, nonce="n"))
        hosted = stage.until("cell-0", lambda report: report.commit is not None and report.commit.address, "hosted").commit
        assert hosted is not None
        commit = CommitOrder(1, TWO, hosted.address, "n", True)
        for cell in TWO:
            order(stage, cell, commit=commit)
        stage.until("cell-0", lambda report: report.commit is not None and report.commit.phase is CommitPhase.reduced, "reduced")
        order(stage, "cell-0", commit=commit, apply=ApplyOrder(0, "h", 6, V1))
        applied = stage.until("cell-0", lambda report: report.applied is not None, "applied").applied
        assert applied is not None and applied.metrics["grad_norm"] == 2.0, "both micro-batches, each once"
        assert not any(has_torch(stage.processes[cell].pid) for cell in TWO)


def test_many_timed_cells_live_in_one_process(tmp_path: Path):
    cells, config = tuple(f"cell-{number}" for number in range(12)), timed_config()
    config.cluster.cells_per_process = 12
    with Stage(tmp_path, config) as stage:
        stage.start_together(*cells)
        stage.wait_registered(*cells)
        order(stage, cells[0], term=1, role=Role.rollout)
        stage.until(cells[0], lambda report: report.state is CellState.rollout, "the first one serves")
        for cell in cells[1:]:
            order(stage, cell, term=1, role=Role.rollout)
        for cell in cells:
            stage.until(cell, lambda report: report.state is CellState.rollout, f"{cell} serves")
            assert len(stage.generate(cell)["output_ids"]) == 8
        order(stage, cells[3])
        stage.until(cells[3], lambda report: report.state is CellState.train, "one of them trains")
        assert all(stage.report(cell).state is CellState.rollout for cell in cells if cell != cells[3])
        assert len({stage.report(cell).pids for cell in cells}) == 1
        assert not has_torch(stage.processes[cells[0]].pid)


def test_scripted_agents_register_and_answer_a_drill_prompt_the_same_way_each_time(tmp_path: Path):
    config = tiny_config()
    config.model.max_context, config.warm_start.sloppiness = 512, 0.0
    chat = create_chat_format(config.model)
    prompt = chat.tokenizer.encode("<|im_start|>user\nJoin a and b into c.\n<|im_end|>\n<|im_start|>assistant\n")
    with Stage(tmp_path, config) as stage:
        stage.start("scripted-0")
        wait_for(lambda: "scripted-0" in stage.registered, "registration")
        body = {"input_ids": prompt, "sampling_params": {"max_new_tokens": 64, "stop_token_ids": list(chat.stop_ids)}}
        request = urllib.request.Request(
            f"{stage.registered['scripted-0'].url}/generate",
            data=json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {TOKEN}", "X-Gyre-Term": "0"},
            method="POST",
        )
        answers = []
        for _ in range(2):
            with urllib.request.urlopen(request, timeout=20) as answer:
                answers.append(json.loads(answer.read()))
        assert answers[0]["output_ids"] == answers[1]["output_ids"]
        assert answers[0]["meta_info"]["weight_version"] == "0.-1"
        agent = create_scripted_agent(config.suite, sloppiness=0.0)
        assert chat.tokenizer.decode(answers[0]["output_ids"]) == agent(chat.tokenizer.decode(prompt), random.Random(0)) + "<|im_end|>"
        assert not has_torch(stage.processes["scripted-0"].pid)


def test_importing_the_cell_process_loads_no_torch():
    code = "import sys, gyre_hpc.processes.cell, gyre_hpc.processes.cells, gyre_hpc.cell.hosted, gyre_hpc.processes.scripted; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, check=False).returncode == 0
