"""Actions that are over at once are told like all others: once each, behind what was queued before, failures with their class."""

import asyncio
from typing import Any

import pytest

from gyre_hpc.machines.base import Effect, Failed, Finished, Input, Machine, Received, Start
from gyre_hpc.shell.host import LATER, Host


class Asks(Machine):
    """Starts what it is told to."""

    def __init__(self) -> None:
        self.heard: list[Input] = []

    def handle(self, now: float, input: Input) -> list[Effect]:
        self.heard.append(input)
        return [Start(f"{place}", action) for place, action in enumerate(input.message)] if isinstance(input, Received) else []


def now(action: int) -> Any:
    if action == 0:
        return LATER
    if action < 0:
        raise ValueError(f"{action}")
    return 10 * action


async def later(key: str, action: int, progress: Any) -> int:
    await asyncio.sleep(0)
    return 100 + action


@pytest.mark.parametrize(
    ("actions", "heard"),
    [
        ([1, 2], [Finished("0", 10), Finished("1", 20)]),
        ([-1, 2], [Failed("0", "ValueError", "-1"), Finished("1", 20)]),
        ([0, 2], [Finished("1", 20), Finished("0", 100)]),
    ],
)
def test_results_come_in_order_and_later_ones_when_they_are_there(actions: list[int], heard: list[Input]) -> None:
    async def steps() -> None:
        machine = Asks()
        host = Host(
            name="one", attempt=1, run_token="t", addresses={}, actions={int: later}, at_once={int: now}, note=lambda kind, fields: None
        )
        host.run(machine, Received("test", actions))
        while len(machine.heard) < 3:
            await asyncio.sleep(0)
        assert machine.heard[1:] == heard
        await host.close()

    asyncio.run(steps())
