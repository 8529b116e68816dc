"""Confine listening sockets of a library that listens on every interface to one address.

The kernel drops what comes to such a socket for another destination (a classic BPF filter, which needs no privilege), as if it had
been bound to that address. Some kernels keep filters for privileged processes: there a loopback address is confined by its
device instead, and any other is refused. Our own sockets are never on every interface, so that one rule finds the library's.
"""

import contextlib
import ctypes
import os
import socket
import struct

_SO_ATTACH_FILTER, _SO_BINDTODEVICE = 26, 25
_NETWORK_HEADER = 0xFFF00000
"""SKF_NET_OFF: offsets from here are into the packet's IP header."""
_LOAD_BYTE, _LOAD_WORD, _AND, _JUMP_EQUAL, _RETURN = 0x30, 0x20, 0x54, 0x15, 0x06


def confine_listeners(host: str) -> int:
    """Confine every TCP listener of this process that is on all interfaces to `host` (IPv4, or a name of one); return how many.

    Linux only. Raises PermissionError when the kernel lets this process confine none to it.
    """
    address = socket.gethostbyname(host)
    confined = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                confined += _confine(int(name), address)
    return confined


def _confine(number: int, address: str) -> bool:
    with socket.socket(fileno=os.dup(number)) as one:
        if one.family not in (socket.AF_INET, socket.AF_INET6) or one.type != socket.SOCK_STREAM:
            return False
        if not one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) or one.getsockname()[0] not in ("0.0.0.0", "::"):
            return False
        try:
            _filter(one, address)
        except PermissionError:
            if not address.startswith("127."):
                raise
            # Other addresses of this machine reach it too, through this very device; other machines do not.
            one.setsockopt(socket.SOL_SOCKET, _SO_BINDTODEVICE, b"lo\0")
        return True


def _filter(one: socket.socket, address: str) -> None:
    steps = _only_to(address)
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    one.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HL", len(steps), ctypes.addressof(code)))


def _only_to(address: str) -> list[tuple[int, int, int, int]]:
    """Take IPv4 packets for `address`, drop all others. (operation, jump if true, jump if false, operand)."""
    (wanted,) = struct.unpack("!I", socket.inet_aton(address))
    return [
        (_LOAD_BYTE, 0, 0, _NETWORK_HEADER),
        (_AND, 0, 0, 0xF0),
        (_JUMP_EQUAL, 0, 3, 0x40),
        (_LOAD_WORD, 0, 0, _NETWORK_HEADER + 16),
        (_JUMP_EQUAL, 0, 1, wanted),
        (_RETURN, 0, 0, 0xFFFFFFFF),
        (_RETURN, 0, 0, 0),
    ]
