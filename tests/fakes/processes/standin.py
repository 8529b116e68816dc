"""A process main that only registers: stands for controller, gateway, runner and cell in tests of the supervisor.

A file `refuse-<name>` in the run folder makes it end with the exit code written in it, `stubborn-<name>` makes it ignore
SIGTERM, `stuck-<name>` makes it stand still for ever before it registers, deaf to all signals but one, `chatty-<name>`
(two numbers) makes it print so many numbered lines, waiting whenever its log has more bytes than the second, and then write `said-<name>`. Under torchrun only rank 0 registers, and each rank writes `world-<name>-<rank>` once its
end is tied to its parent's.
"""

import asyncio
import ctypes
import os
import signal
import sys
import time

from gyre_hpc.machines.base import Effect, Input, Machine, Restarted, TimerFired
from gyre_hpc.machines.membership import Membership
from gyre_hpc.protocol.supervision import Register
from gyre_hpc.shell import stacks
from gyre_hpc.shell.arguments import Birth, read_birth
from gyre_hpc.shell.host import Host
from gyre_hpc.shell.lifetime import end_with_parent


class OnlyMember(Machine):
    """Registers and does nothing else."""

    def __init__(self, register: Register) -> None:
        self._membership = Membership(register)

    def handle(self, now: float, input: Input) -> list[Effect]:
        return self._membership.beat() if isinstance(input, Restarted | TimerFired) else []


async def live(birth: Birth) -> None:
    host = Host(
        name=birth.name,
        attempt=birth.attempt,
        run_token=birth.run_token,
        addresses=birth.addresses,
        actions={},
        note=lambda kind, fields: None,
    )
    url = await host.bind("127.0.0.1")
    if (birth.folder.root / f"stubborn-{birth.name}").exists():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        end_with_parent(host.end)
    write_world(birth)
    chatty = birth.folder.root / f"chatty-{birth.name}"
    if chatty.exists():
        asyncio.get_running_loop().run_in_executor(None, talk, birth, *map(int, chatty.read_text().split()))
    if os.environ.get("RANK", "0") == "0":
        host.run(OnlyMember(Register(birth.name, birth.incarnation, url, os.getpid())), Restarted())
    await host.ended
    await host.close()
    (birth.folder.root / f"ended-{birth.name}-{birth.incarnation}").touch()


def talk(birth: Birth, num_lines: int, most_bytes: int) -> None:
    log = birth.folder.log(birth.name)
    for number in range(num_lines):
        while log.stat().st_size > most_bytes:
            time.sleep(0.01)
        print(f"line {number} " + "x" * 50, flush=True)
    (birth.folder.root / f"said-{birth.name}").touch()


def write_world(birth: Birth) -> None:
    rank = os.environ.get("RANK")
    if rank is not None:
        world = f"{rank} {os.environ['WORLD_SIZE']} {os.environ.get('MASTER_ADDR', '')}".strip()
        (birth.folder.root / f"world-{birth.name}-{rank}").write_text(world)


def stands_still() -> None:
    """In C, with the interpreter's lock."""
    ctypes.PyDLL(None).sleep(1000)


def main() -> int:
    birth = read_birth()
    refuse = birth.folder.root / f"refuse-{birth.name}"
    if refuse.exists():
        return int(refuse.read_text())
    stacks.of_birth(birth, rank=int(os.environ["RANK"]) if "RANK" in os.environ else None)
    if (birth.folder.root / f"stuck-{birth.name}").exists():
        stands_still()
    asyncio.run(live(birth))
    return 0


if __name__ == "__main__":
    sys.exit(main())
