"""Answers from pieces, requests from JSON, the compute thread, and what may be loaded."""

import json
import subprocess
import sys
import threading

import pytest
import torch

from gyre_hpc.config.schema import EngineConfig, EngineKind, ModelConfig
from gyre_hpc.engines import create_engine
from gyre_hpc.engines.answer import Answer, Piece, reached_length
from gyre_hpc.engines.embedded import jobs
from gyre_hpc.engines.embedded.core import EngineCore
from gyre_hpc.engines.embedded.forward import Forward
from gyre_hpc.engines.embedded.memory import KVMemory
from gyre_hpc.engines.embedded.worker import Worker
from gyre_hpc.engines.request import BadRequest, parse_generate
from gyre_hpc.engines.timed import TimedEngine
from gyre_hpc.protocol.identity import Version
from tests.fakes.engine_rig import MODEL, PARAMS, V0, V1
from tests.fakes.virtual_time import VirtualTime


def piece(start: int, ids: list[int], version: str, oldest: str, finish: dict[str, object] | None = None) -> Piece:
    return Piece(
        number=0,
        start=start,
        ids=ids,
        logprobs=[-float(token) for token in ids],
        spans=((version, start, start + len(ids)),) if ids else (),
        oldest_kv=oldest,
        cached=16,
        num_retractions=0,
        finish=finish,
    )


def test_an_answer_joins_spans_and_keeps_the_oldest_kv() -> None:
    answer = Answer(rid="r", num_prompt=3, return_logprob=True, version="0.9")
    answer.add(piece(0, [1, 2], "0.9", "0.9"))
    first = answer.news(0.0)
    assert first["meta_info"]["oldest_kv_version"] == "0.9"
    answer.add(piece(2, [3], "0.9", "0.9"))
    answer.add(piece(3, [4], "0.10", "0.9"))
    answer.add(piece(4, [], "0.10", "0.10", reached_length(4)))
    news = answer.news(1.5)
    assert (news["output_start"], news["output_ids"]) == (2, [3, 4])
    assert news["meta_info"]["weight_versions"] == [
        {"version": "0.9", "start": 2, "end": 3},
        {"version": "0.10", "start": 3, "end": 4},
    ]
    assert news["meta_info"]["e2e_latency"] == 1.5
    whole = answer.whole(1.5)["meta_info"]
    assert whole["weight_version"] == "0.10"
    assert whole["oldest_kv_version"] == "0.9", "versions are compared as numbers"
    assert [entry[:2] for entry in whole["output_token_logprobs"]] == [[-1.0, 1], [-2.0, 2], [-3.0, 3], [-4.0, 4]]


def test_pieces_out_of_order_are_our_own_mistake() -> None:
    answer = Answer(rid="r", num_prompt=3, return_logprob=True, version="0.0")
    with pytest.raises(AssertionError):
        answer.add(piece(1, [1], "0.0", "0.0"))


def test_sglangs_defaults_and_unknown_fields_are_taken() -> None:
    body = {"input_ids": [1, 2], "logprob_start_len": -1, "top_logprobs_num": 0, "sampling_params": {"min_p": 0.0}}
    request = parse_generate(json.dumps(body).encode(), 512, 10)
    assert (request.temperature, request.top_p, request.top_k, request.max_new_tokens) == (1.0, 1.0, 0, 128)
    assert request.rid and len(request.key) == 16
    assert parse_generate(json.dumps(body).encode(), 512, 10).key != request.key


def test_a_body_that_is_not_json_is_refused() -> None:
    with pytest.raises(BadRequest, match="/generate body"):
        parse_generate(b"{", 512, 10)


def test_jobs_run_in_order_in_one_thread_and_errors_go_to_the_caller() -> None:
    threads: list[str] = []

    def snapshot(version: Version) -> dict[str, torch.Tensor]:
        threads.append(threading.current_thread().name)
        if version != V0:
            raise KeyError(version)
        return PARAMS[version]

    forward = Forward(MODEL)
    core = EngineCore(
        lambda: KVMemory(forward, kv_tokens=2048, page_size=8, max_batch=4, keep_kv=False),
        forward=forward, snapshot=snapshot, decode=None, max_batch=4, prefill_chunk=64, keep_kv=False,
        stream_tokens=4, stream_s=0.25, now=lambda: 0.0,
    )  # fmt: skip
    worker = Worker(core, deliver=lambda _: None, on_failure=lambda _: None)
    worker.start()
    asked = [worker.ask(job) for job in (jobs.Prepare(V0), jobs.Wake(V0), jobs.Prepare(V1), jobs.FlushCache(), jobs.Sleep())]
    ((_, awake),) = asked[1].result()
    assert awake > 0
    with pytest.raises(KeyError):
        asked[2].result()
    ((_, asleep),) = asked[4].result()
    assert (asked[3].result(), asleep) == (True, 0)
    worker.close()
    assert threads == ["engine-compute"] * 2
    with pytest.raises(RuntimeError, match="closed"):
        worker.ask(jobs.Nothing())


def test_timed_and_scripted_engines_load_no_torch() -> None:
    code = (
        "import sys; from gyre_hpc.config.schema import EngineConfig, EngineKind, ModelConfig;"
        "from gyre_hpc.engines import create_engine, scripted;"
        "create_engine(EngineConfig(kind=EngineKind.timed), model_config=ModelConfig(), vocab_size=9, store=None,"
        " run_token='t', host='127.0.0.1', timer=lambda s, c: None);"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_configuration_chooses_the_kind() -> None:
    time = VirtualTime()
    engine = create_engine(
        EngineConfig(kind=EngineKind.timed, timed_tokens_per_s=1000.0, timed_half=8.0),
        model_config=ModelConfig(max_context=256),
        vocab_size=40,
        store=None,
        run_token="t",
        host="127.0.0.1",
        timer=time.timer,
    )
    assert isinstance(engine, TimedEngine)
    assert (engine.max_context, engine.vocab_size) == (256, 40)
    assert engine.curve()[8] == pytest.approx(500.0)
