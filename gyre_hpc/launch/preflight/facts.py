"""What is known of one node before a run computes anything: plain data, written by the node itself, judged by judge.py."""

import msgspec


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A folder as one node sees it."""

    path: str
    error: str = ""
    """Why it cannot be used there; empty: it can be written to."""
    free_bytes: int = 0
    free_inodes: int | None = None
    """None: the file system does not count them."""


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """One that this job may use."""

    name: str
    memory_mb: int
    used_mb: int


class Leftover(msgspec.Struct, frozen=True, kw_only=True):
    """A process of an earlier run whose parent is gone."""

    pid: int
    command: str


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    """One that this node tried to make to another one."""

    to: int
    """Place of that node."""
    address: str
    """host:port."""
    error: str = ""
    seconds: float = 0.0
    """There and back."""
    ahead_s: float = 0.0
    """That node's clock beside this one's, known to within `seconds`."""


class Unseen(msgspec.Struct, frozen=True, kw_only=True):
    """A folder or file that a sandbox cannot use."""

    field: str
    """Key of the configuration that names it."""
    path: str
    error: str

    def what(self, where: str) -> str:
        """What is wrong, and the remedy."""
        remedy = "it and every folder above it must be open to this user without root's special rights: chown it or name another one"
        return f"a sandbox cannot use it {where} ({self.error}); {remedy}, or set sandbox.kind=none"


class NodeProbe(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one node says."""

    node: int
    """Its place in the allocation."""
    host: str
    address: str = ""
    """What network.interface means there."""
    address_error: str = ""
    run: Place
    scratch: Place
    cache: Place
    gpus: tuple[Gpu, ...] = ()
    gpu_error: str = ""
    """nvidia-smi is there and does not answer."""
    leftovers: tuple[Leftover, ...] = ()
    versions: dict[str, str] = {}
    """As in attempts/<n>/versions.json."""
    interconnects: tuple[str, ...] = ()
    """RDMA devices."""
    sandbox: str = ""
    """Why bubblewrap does not work there; empty: it does."""
    unseen: Unseen | None = None
    """What one of the run's sandboxes would not see there."""
    connections: tuple[Connection, ...] = ()
