"""What must hold in a gateway machine's world: looked at after every step, and when everything has come to rest."""

from collections.abc import Sequence
from typing import Any

from gyre_hpc.chat.base import ChatFormat
from gyre_hpc.machines.call import GatewayMachine
from gyre_hpc.machines.call.actions import EngineAttempt, Reply, Say
from gyre_hpc.protocol.journal import CallBegin, CallEnd, CallProgress, Record
from gyre_hpc.protocol.tensors import unpack_ids
from tests.fakes.call_parts import STOP, Client, draw


class CallChecks:
    """The part of CallWorld that asserts."""

    machine: GatewayMachine
    journal: list[Record]
    clients: list[Client]
    actions: dict[str, Any]
    said: dict[str, str]
    asking: set[str]
    scripts: dict[str, list[int]]
    format: ChatFormat

    before: Sequence[Record] = ()
    """Of earlier attempts of the run."""

    @property
    def records(self) -> list[Record]:
        return [*self.before, *self.journal]

    @property
    def shard(self) -> Any:
        return self.machine._shard

    def drawn(self, call: str, key: str, position: int) -> int:
        """Token of a call at a position: as prescribed, or by its key."""
        script = self.scripts.get(call)
        return draw(key, position) if script is None else [*script, *[STOP] * (position + 1)][position]

    def parsed(self, call: str) -> str:
        """Text of a call's durable output."""
        return self.format.parse(self.output(call), stop=self.begins()[call].sampling.stop).content

    def begins(self) -> dict[str, CallBegin]:
        return {record.call: record for record in self.records if isinstance(record, CallBegin)}

    def output(self, call: str) -> list[int]:
        """Durable tokens of a call."""
        pieces = [record for record in self.records if isinstance(record, CallProgress) and record.call == call]
        return [token for piece in pieces for token in unpack_ids(piece.output_ids).tolist()]

    def check_journal(self) -> None:
        newest = self.journal[-1] if self.journal else None
        if isinstance(newest, CallProgress):
            ids = self.output(newest.call)
            assert newest.start + len(newest.output_ids) // 4 == len(ids), "a position twice, or a hole"
            key = self.begins()[newest.call].sampling.key
            assert ids == [self.drawn(newest.call, key, position) for position in range(len(ids))]
            assert newest.spans[0].start == newest.start and newest.spans[-1].end == len(ids)
            assert len(newest.logprobs) == len(newest.output_ids)
        if isinstance(newest, CallEnd):
            assert newest.num_output == len(self.output(newest.call))

    def check(self) -> None:
        """At any time."""
        tokens = self.shard.tokens
        assert not tokens["resampled"] and not tokens["lost"]
        running = [action.call for action in self.actions.values() if isinstance(action, EngineAttempt)]
        assert len(running) == len(set(running)), "two attempts at once"
        assert sum(self.shard.routing.loads.values()) == len(running)

    def check_rest(self) -> None:
        """When all agents have their answers."""
        assert not self.shard.waiting and not self.shard.conns
        assert not self.asking and not self.shard.confirming, "asked, and told nothing"
        assert not any(self.shard.routing.loads.values())
        for client in self.clients:
            recorded = [self.parsed(call) for call in self.begins()]
            assert all(answer in recorded for answer in client.answers)

    def _check_start(self, action: Any) -> None:
        if isinstance(action, EngineAttempt):
            node = self.shard.trees[action.call.rpartition("/")[0]].nodes[action.call]
            assert b"".join(action.prompt) == b"".join(node.prompt()) + bytes(node.output)
            assert action.position == len(node.output) // 4
            assert action.max_new_tokens == node.sampling.max_new_tokens - action.position > 0
            assert node.newest is None or action.version >= node.newest, "continued at older weights"
        if isinstance(action, Say):
            self.said[action.conn] = self.said.get(action.conn, "") + action.text
            assert self.parsed(action.call).startswith(self.said[action.conn]), "said what was not durable"
        if isinstance(action, Reply):
            ends = [record for record in self.records if isinstance(record, CallEnd) and record.call == action.call]
            assert ends and ends[-1].finish == action.finish, "answered before the end was durable"
            text = action.answer.content
            assert text.startswith(self.said.get(action.conn, "")), "what was said is no beginning of the answer"
            assert text == self.parsed(action.call), "the answer is not what was sampled"
