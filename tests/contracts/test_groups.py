"""Contract of Groups. Members are threads for every kind, and processes of their own for c10d."""

import json
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from gyre_hpc.config.schema import TransportConfig
from gyre_hpc.errors import TransferFailed, UserError
from gyre_hpc.transport.groups import create_groups

MEMBER = Path(__file__).with_name("group_member.py")


@pytest.fixture(params=["c10d", "memory", "tcp"])
def make(request):
    opened = []

    def open_groups():
        opened.append(create_groups(TransportConfig(groups=request.param), "127.0.0.1"))
        return opened[-1]

    yield open_groups
    for groups in opened:
        groups.close()


def _in_threads(members):
    """Run each (groups, keyword arguments) reduce in a thread; results or errors by rank."""
    results = {}

    def one(groups, arguments):
        try:
            results[arguments["rank"]] = groups.reduce(**arguments)
        except TransferFailed as error:
            results[arguments["rank"]] = error

    threads = [threading.Thread(target=one, args=member) for member in members]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def _arguments(rank, world, address, *, nonce="n", generation=1, deadline_s=10.0, value=None, size=1000):
    return {
        "generation": generation,
        "address": address,
        "nonce": nonce,
        "rank": rank,
        "world": world,
        "tensor": np.full(size, float(rank + 1 if value is None else value), dtype=np.float32),
        "deadline_s": deadline_s,
    }


@pytest.mark.parametrize("world", [1, 2, 3])
def test_rank_0_gets_the_sum_and_nobody_s_tensor_changes(make, world):
    members = [make() for _ in range(world)]
    address = members[0].host(1, "n")
    calls = [(groups, _arguments(rank, world, address)) for rank, groups in enumerate(members)]
    results = _in_threads(calls)
    assert results[0].tolist() == [sum(range(1, world + 1))] * 1000
    assert all(results[rank] is None for rank in range(1, world))
    for rank, (_, arguments) in enumerate(calls):
        assert (arguments["tensor"] == rank + 1).all()
        assert results[0] is not arguments["tensor"]


def test_generations_follow_each_other_with_other_members(make):
    core, first, second = make(), make(), make()
    for generation, others in ((1, (first,)), (2, (first, second)), (3, (second,))):
        address = core.host(generation, f"n{generation}")
        members = (core, *others)
        results = _in_threads(
            [(m, _arguments(r, len(members), address, generation=generation, nonce=f"n{generation}")) for r, m in enumerate(members)]
        )
        assert results[0][0] == sum(range(1, len(members) + 1))


def test_hosting_a_generation_twice_gives_the_same_address(make):
    core = make()
    assert core.host(4, "n") == core.host(4, "n")


def test_a_wrong_nonce_is_refused_by_every_member(make):
    core, liar = make(), make()
    address = core.host(1, "right")
    results = _in_threads(
        [(core, _arguments(0, 2, address, nonce="right", deadline_s=5)), (liar, _arguments(1, 2, address, nonce="wrong", deadline_s=5))]
    )
    assert "nonce" in str(results[0])
    assert "nonce" in str(results[1])


def test_an_empty_nonce_is_an_error(make):
    with pytest.raises(ValueError, match="nonce"):
        make().host(1, "")


def test_an_absent_member_fails_the_reduce_within_the_deadline_and_is_named(make):
    core, other = make(), make()
    address = core.host(1, "n")
    calls = [(core, _arguments(0, 3, address, deadline_s=0.5)), (other, _arguments(2, 3, address, deadline_s=0.5))]
    results = _in_threads(calls)
    assert "rank 1 of 3 did not come" in str(results[0])
    assert isinstance(results[2], TransferFailed)
    assert (calls[0][1]["tensor"] == 1).all()


def test_a_reduce_can_be_aborted_from_another_thread(make):
    core = make()
    address = core.host(1, "n")
    results = {}
    thread = threading.Thread(target=lambda: results.update(_in_threads([(core, _arguments(0, 2, address, deadline_s=600.0))])))
    thread.start()
    core.abort(1)
    thread.join()
    assert isinstance(results[0], TransferFailed)


def test_an_abort_that_overtakes_its_reduce_still_counts(make):
    core = make()
    address = core.host(1, "n")
    core.abort(1)
    with pytest.raises(TransferFailed, match="aborted"):
        core.reduce(**_arguments(0, 2, address, deadline_s=600.0))


def test_after_an_abort_the_next_generation_works(make):
    core, other = make(), make()
    core.host(1, "n")
    core.abort(1)
    address = core.host(2, "m")
    results = _in_threads(
        [(core, _arguments(0, 2, address, generation=2, nonce="m")), (other, _arguments(1, 2, address, generation=2, nonce="m"))]
    )
    assert results[0][0] == 3


def test_two_groups_entered_in_opposite_order_end_within_their_deadlines(make):
    """C8: a cycle is an error after a finite wait, never a hang."""
    left, right = make(), make()
    addresses = {1: left.host(1, "n"), 2: right.host(2, "n")}
    outcomes = []

    def enter(groups, order, rank_in):
        for generation in order:
            arguments = _arguments(rank_in[generation], 2, addresses[generation], generation=generation, deadline_s=0.5)
            try:
                groups.reduce(**arguments)
            except TransferFailed as error:
                outcomes.append(error)

    actors = [
        threading.Thread(target=enter, args=(left, (1, 2), {1: 0, 2: 1})),
        threading.Thread(target=enter, args=(right, (2, 1), {1: 1, 2: 0})),
    ]
    for actor in actors:
        actor.start()
    for actor in actors:
        actor.join()
    assert len(outcomes) >= 2


def test_an_address_that_nobody_hosts_fails_within_the_deadline(make):
    with pytest.raises(TransferFailed):
        make().reduce(**_arguments(1, 2, "127.0.0.1:1", deadline_s=0.5))


def test_torch_tensors_stay_torch_tensors():
    core = create_groups(TransportConfig(groups="c10d"), "127.0.0.1")
    tensor = torch.ones(4)
    total = core.reduce(1, core.host(1, "n"), "n", 0, 1, tensor, 5.0)
    total += 1
    assert tensor.tolist() == [1.0] * 4
    core.close()


def test_unknown_and_missing_kinds_name_the_remedy():
    with pytest.raises(UserError, match="c10d, tcp, memory or torchft"):
        create_groups(TransportConfig(groups="carrier-pigeon"), "127.0.0.1")
    with pytest.raises(UserError, match=r"transport\.groups='torchft'"):
        create_groups(TransportConfig(groups="torchft"), "127.0.0.1")
    with pytest.raises(UserError, match=r"transport\.backend"):
        create_groups(TransportConfig(groups="c10d", backend="mpi"), "127.0.0.1")


class _Processes:
    """Members in processes of their own."""

    def __init__(self, count: int) -> None:
        self.members = [
            subprocess.Popen([sys.executable, str(MEMBER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(count)
        ]
        for member in self.members:
            assert json.loads(member.stdout.readline())["ready"]

    def order(self, index: int, **order) -> None:
        member = self.members[index]
        member.stdin.write(json.dumps(order) + "\n")
        member.stdin.flush()

    def answer(self, index: int) -> dict:
        line = self.members[index].stdout.readline()
        return json.loads(line) if line else {"dead": self.members[index].wait()}

    def close(self) -> None:
        for member in self.members:
            member.kill()
            member.wait()
            member.stdin.close()
            member.stdout.close()


@pytest.fixture
def processes():
    started = _Processes(2)
    yield started
    started.close()


def _order(rank, world, address, generation=1, **more):
    where = {"generation": generation, "address": address, "nonce": "n", "rank": rank, "world": world}
    return {**where, "size": 200_000, "value": rank + 1, "deadline_s": 20.0, **more}


def test_members_in_processes_of_their_own_reduce_to_the_core(processes):
    core = create_groups(TransportConfig(), "127.0.0.1")
    address = core.host(1, "n")
    for index in (0, 1):
        processes.order(index, **_order(index + 1, 3, address))
    total = core.reduce(1, address, "n", 0, 3, torch.ones(200_000), 20.0)
    assert total.sum().item() == 6 * 200_000
    assert [processes.answer(i) for i in (0, 1)] == [{"sum": None, "untouched": True}] * 2
    core.close()


def test_kill_9_in_mid_reduce_fails_the_others_and_the_survivors_reduce_anew(processes):
    core = create_groups(TransportConfig(), "127.0.0.1")
    address = core.host(1, "n")
    mine = torch.ones(200_000)
    processes.order(0, **_order(1, 3, address, deadline_s=3.0))
    processes.order(1, **_order(2, 3, address, signal_in_reduce="SIGKILL"))
    with pytest.raises(TransferFailed):
        core.reduce(1, address, "n", 0, 3, mine, 3.0)
    assert processes.answer(1) == {"dead": -9}
    survivor = processes.answer(0)
    assert survivor["untouched"]
    assert "failed" in survivor
    assert (mine == 1).all()

    address = core.host(2, "n")
    processes.order(0, **_order(1, 2, address, generation=2))
    total = core.reduce(2, address, "n", 0, 2, mine, 20.0)
    assert total.sum().item() == 3 * 200_000
    assert processes.answer(0) == {"sum": None, "untouched": True}
    core.close()


def test_a_member_that_falls_silent_in_mid_reduce_fails_the_others_within_the_deadline(processes):
    """C7: the peer is alive and its connections stand, but it says nothing more."""
    core = create_groups(TransportConfig(), "127.0.0.1")
    address = core.host(1, "n")
    mine = torch.ones(200_000)
    processes.order(0, **_order(1, 3, address, deadline_s=2.0))
    processes.order(1, **_order(2, 3, address, signal_in_reduce="SIGSTOP"))
    with pytest.raises(TransferFailed):
        core.reduce(1, address, "n", 0, 3, mine, 2.0)
    assert "failed" in processes.answer(0)
    assert (mine == 1).all()
    core.close()
