"""Cores that are given the same jobs between the same steps stay the same, whatever their clocks say: what ranks that share a model
rely on."""

import itertools
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gyre_hpc.config.schema import EngineConfig
from gyre_hpc.engines.embedded import jobs
from gyre_hpc.engines.embedded.build import new_core, new_forward
from gyre_hpc.engines.embedded.core import EngineCore
from gyre_hpc.engines.request import Request
from tests.fakes.engine_rig import MODEL, PARAMS, V0, V1, decode

CONFIG = EngineConfig(kv_tokens=2048, page_size=8, max_batch=5, prefill_chunk=16)
FORWARD = new_forward(CONFIG, MODEL, None)


@st.composite
def requests(draw: st.DrawFn) -> Request:
    """Prompts of few kinds, so that pages are shared."""
    ids = tuple(draw(st.sampled_from([1, 2, 3])) for _ in range(3)) * draw(st.integers(1, 12))
    return Request(
        rid=str(draw(st.integers(0, 10**6))),
        input_ids=ids,
        temperature=draw(st.sampled_from([0.0, 1.0, 1.5])),
        top_p=draw(st.sampled_from([1.0, 0.8])),
        top_k=draw(st.sampled_from([0, 7])),
        max_new_tokens=draw(st.integers(1, 40)),
        stop_ids=frozenset(draw(st.sets(st.integers(0, 63), max_size=2))),
        key=draw(st.binary(min_size=1, max_size=4)),
        position=0,
        return_logprob=True,
        stream=draw(st.booleans()),
        incremental=draw(st.booleans()),
        stop=draw(st.sampled_from([(), ("ab", " the")])),
        call=draw(st.sampled_from(["", "train-0-0-0/1", "train-0-0-1/1"])),
    )


TURNS = st.lists(
    st.tuples(
        st.lists(
            st.one_of(
                requests(),
                st.builds(jobs.Abort, st.integers(0, 9), st.just("")),
                st.builds(jobs.Pause, st.booleans()),
                st.just(jobs.Resume()),
                st.just(jobs.FlushCache()),
                st.just(V0),
                st.just(V1),
                st.builds(jobs.Lease, st.just(("train-0-0-0", "train-0-0-1"))),
                st.builds(jobs.Release, st.integers(1, 3)),
            ),
            max_size=3,
        ),
        st.integers(0, 12),
    ),
    max_size=12,
)


def jobs_of(told: list[Any], numbers: "itertools.count[int]") -> list[jobs.Job]:
    """A request becomes Add, a version is prepared and then served."""
    made: list[jobs.Job] = []
    for one in told:
        if isinstance(one, Request):
            made.append(jobs.Add(next(numbers), one))
        elif one in (V0, V1):
            made += [jobs.Prepare(one), jobs.Update(one)]
        else:
            made.append(one)
    return made


def state_of(core: EngineCore) -> Any:
    """Everything that decides what comes next."""
    assert core.memory is not None
    sequences = [(seq.number, seq.stage, seq.ids, seq.logprobs, seq.pages, seq.row, seq.num_kv) for seq in core._live.values()]
    return core.trace, core.counters, core.version, core.is_paused, core.is_starved, sequences, vars(core.memory.table)["_free"]


@settings(max_examples=40, deadline=None)
@given(turns=TURNS, ticks=st.lists(st.floats(0, 5), min_size=1, max_size=20))
def test_the_same_jobs_make_the_same_core_whatever_the_clock_says(turns: list[Any], ticks: list[float]):
    cores = [new_core(CONFIG, FORWARD, PARAMS.__getitem__, decode=decode, stream_tokens=4, stream_s=0.5) for _ in range(2)]
    now = itertools.accumulate(itertools.cycle(ticks))
    cores[0]._now, cores[1]._now = lambda: 0.0, lambda: next(now)
    numbers = itertools.count()
    for core in cores:
        jobs.do(core, jobs.Prepare(V0))
        jobs.do(core, jobs.Wake(V0))
    for told, num_steps in turns:
        for job in jobs_of(told, numbers):
            results = [jobs.do(core, job)[0] for core in cores]
            assert results[0] == results[1]
        for _ in range(num_steps):
            for core in cores:
                core.step()
            assert state_of(cores[0]) == state_of(cores[1])
