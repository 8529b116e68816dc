"""What a cell is in a pair (engine.sglang.kv=pd): its half, and how it reaches the other one, or is reached."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from gyre_hpc.cell.place import free_port, server_folder
from gyre_hpc.cell.prompt_client import PromptClient
from gyre_hpc.cell.prompts import Prompts
from gyre_hpc.config.pairs import prefiller_of, prefills
from gyre_hpc.engines.base import Engine
from gyre_hpc.engines.sglang.engine import SGLangEngine
from gyre_hpc.engines.sglang.parts import Bootstrap, Nodes
from gyre_hpc.engines.sglang.prefill import Half
from gyre_hpc.engines.sglang.site import Part
from gyre_hpc.ports import listen
from gyre_hpc.shell.arguments import Birth
from gyre_hpc.whole_file import write_whole


@dataclass(frozen=True, kw_only=True, slots=True)
class Pairing:
    """Of one cell, for its life. Without a pair: a whole server."""

    half: Half
    host: str
    client: PromptClient | None = None
    port_file: Path | None = None

    @classmethod
    def of(cls, birth: Birth, nodes: Nodes, address_of: Callable[[str], str | None]) -> "Pairing":
        """address_of: see PromptClient. Raises OSError when there is no port for the bootstrap server."""
        host = birth.config.network.interface
        if prefills(birth.config, birth.name):
            file = server_folder(birth, nodes) / "bootstrap.port"
            return cls(half=Half(part=Part.prefill, bootstrap_port=_port(file, host)), host=host, port_file=file)
        prefiller = prefiller_of(birth.config, birth.name)
        if prefiller is None:
            return cls(half=Half(part=Part.whole), host=host)
        client = PromptClient(prefiller, address_of, birth.run_token)
        return cls(half=Half(part=Part.decode, prefill=client), host=host, client=client)

    @contextlib.contextmanager
    def starting(self) -> Iterator[None]:
        """While the server starts: at another port it may do well next time."""
        try:
            yield
        except BaseException:
            if self.port_file is not None:
                self.port_file.unlink(missing_ok=True)
            raise

    def add_to(self, app: web.Application, engine: Engine) -> None:
        if self.half.part is Part.prefill:
            assert isinstance(engine, SGLangEngine)
            Prompts(engine.prompt, Bootstrap(host=self.host, port=self.half.bootstrap_port)).add_to(app)

    async def close(self) -> None:
        if self.client is not None:
            await self.client.close()


def _port(file: Path, host: str) -> int:
    """As a process of this cell before chose it while somebody listens there: a server that still runs is adopted by an equal launch
    alone. A new server gets a new one: the other half remembers ranks by it."""
    with contextlib.suppress(FileNotFoundError, ValueError):
        known = int(file.read_text())
        if _is_taken(host, known):
            return known
    port = free_port(host)
    write_whole(file, str(port).encode())
    return port


def _is_taken(host: str, port: int) -> bool:
    try:
        with listen(host, port):
            return False
    except OSError:
        return True
