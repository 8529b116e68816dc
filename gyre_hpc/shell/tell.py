"""One message to one process, from a program without a loop: sent, or an error. Others have Mail."""

import http.client
from urllib.parse import urlsplit

from gyre_hpc.protocol.envelope import Envelope, encode


def tell(url: str, run_token: str, envelope: Envelope, deadline_s: float) -> None:
    """POST `envelope` to the process at base URL `url`; back once it was taken. deadline_s: of each step of the exchange.

    Raises OSError when it was not taken, HTTPException for an answer that is none.
    """
    there = urlsplit(url)
    assert there.hostname and there.port, f"{url} is no address of a process"
    connection = http.client.HTTPConnection(there.hostname, there.port, timeout=deadline_s)
    headers = {"Authorization": f"Bearer {run_token}", "Content-Type": "application/json"}
    try:
        connection.request("POST", "/messages", encode(envelope), headers)
        answer = connection.getresponse()
        text = answer.read().decode(errors="replace")
    finally:
        connection.close()
    if answer.status != 204:
        raise OSError(f"{url} answered {answer.status}: {text[:200]}")
