"""Is what answers on a port of this machine the server that was started there? Without an HTTP library: keepers start fast."""

import socket

_ANSWER_S = 2.0
_MOST_BYTES = 4096


def is_ours(port: int, key: str, *, has_key: bool, host: str = "127.0.0.1") -> bool:
    """It is well, and (`has_key`) knows the key and takes no other: another program may have taken the port in between."""
    at = (host, port)
    if _status(at, "/health", key) != 200:
        return False
    return not has_key or (_status(at, "/model_info", "x" + key) == 401 and _status(at, "/model_info", key) == 200)


def _status(at: tuple[str, int], path: str, key: str) -> int:
    """HTTP status of a GET; 0 when there is no answer in time."""
    request = f"GET {path} HTTP/1.1\r\nHost: {at[0]}\r\nAuthorization: Bearer {key}\r\nConnection: close\r\n\r\n"
    try:
        with socket.create_connection(at, timeout=_ANSWER_S) as connection:
            connection.sendall(request.encode())
            answer = b""
            while b"\r\n" not in answer and len(answer) < _MOST_BYTES:
                data = connection.recv(_MOST_BYTES)
                if not data:
                    break
                answer += data
    except OSError:
        return 0
    words = answer.split(None, 2)
    return int(words[1]) if len(words) > 1 and words[1].isdigit() else 0
