"""A run whose tool calls never parse ends with the reason (A8); one parsed call is enough to go on."""

from gyre_hpc.machines.base import Note
from gyre_hpc.machines.batch import BatchMachine
from gyre_hpc.protocol.to_batch import GatewayReport
from tests.fakes.batch_bench import tell, training

WINDOW = 200


class Shards:
    """Gateway shards that count."""

    def __init__(self, made: BatchMachine) -> None:
        self.made, self.seq = made, 0
        self.counts: dict[str, dict[str, int]] = {}

    def say(self, shard: str = "gateway-0", incarnation: int = 1, **counts: int) -> list[Note]:
        """One report; what the machine notes."""
        self.seq += 1
        self.counts.setdefault(shard, {}).update(counts)
        report = GatewayReport(shard, incarnation, self.seq, 0, 0, tokens=dict(self.counts[shard]))
        return [effect for effect in tell(self.made, 1.0, report) if isinstance(effect, Note)]


def watched(window: int = WINDOW) -> tuple[BatchMachine, Shards]:
    made = training()
    object.__setattr__(made.state.settings, "malformed_window", window)
    return made, Shards(made)


def test_a_window_of_malformed_calls_ends_the_run_with_the_reason() -> None:
    made, shards = watched()
    shards.say(tool_calls_malformed=WINDOW - 1)
    assert not made.state.finished
    notes = shards.say(tool_calls_malformed=WINDOW)
    assert made.state.finished and made.state.exit_code == 1
    assert "gateway.malformed_window=200" in made.state.reason and "200 tool calls in a row" in made.state.reason
    assert [note.kind for note in notes][:2] == ["alarm", "run_finished"]


def test_shards_and_evaluations_count_together() -> None:
    made, shards = watched()
    shards.say("gateway-0", tool_calls_malformed=100)
    shards.say("gateway-1", tool_calls_malformed=50, eval_tool_calls_malformed=50)
    assert made.state.finished


def test_one_parsed_call_begins_a_new_window() -> None:
    made, shards = watched()
    shards.say(tool_calls_malformed=150)
    shards.say("gateway-1", tool_calls=1)
    shards.say(tool_calls_malformed=349)
    assert not made.state.finished
    shards.say(tool_calls_malformed=350)
    assert made.state.finished


def test_a_shard_that_restarted_and_counts_less_ends_nothing() -> None:
    made, shards = watched()
    shards.say(tool_calls=5, tool_calls_malformed=100)
    shards.say(incarnation=2, tool_calls=4, tool_calls_malformed=90)
    shards.say(incarnation=2, tool_calls=4, tool_calls_malformed=299)
    assert not made.state.finished


def test_scripted_warm_starts_and_a_window_of_zero_end_nothing() -> None:
    made, shards = watched()
    shards.say(warm_tool_calls_malformed=1000)
    assert not made.state.finished
    made, shards = watched(0)
    shards.say(tool_calls_malformed=10**6)
    assert not made.state.finished
