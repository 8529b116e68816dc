"""Stands in for SGLang's launcher: the flags, /health and /model_info of one, and processes below it. Started as a program.

--pretend says how it misbehaves: `die` (prints last words), `taken` (the first start finds its port taken), `never-well`,
`stubborn` (ignores SIGTERM), `ranks` (has one, with SGLang's title, and does not care for it), `chatty` (prints much), `follower`
(that of a further node: no API but /health), `no-bootstrap` (its bootstrap port is taken).
"""

import argparse
import json
import mmap
import os
import signal
import socket
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

SHARED: list[mmap.mmap] = []
SLEEPER = ["/bin/sh", "-c", "trap '' TERM; echo below; exec sleep 1000"]


def main() -> None:
    parser = argparse.ArgumentParser(prog="pretended sglang")
    parser.add_argument("--config", required=True)
    parser.add_argument("--model-path")
    parser.add_argument("--pretend", default="")
    parser.add_argument("--disaggregation-bootstrap-port", type=int, default=0)
    args = parser.parse_args()
    start = json.loads(Path(args.config).read_text())
    if args.pretend == "die":
        sys.exit("last words: no such model")
    if args.pretend == "no-bootstrap":
        where = ("127.0.0.1", args.disaggregation_bootstrap_port)
        print(f"Server error: [Errno 98] error while attempting to bind on address {where}: address already in use", flush=True)
        signal.pause()
    if args.pretend == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if args.pretend == "chatty":
        for number in range(4000):
            print(f"line {number} " + "x" * 40)
        sys.stdout.flush()
    begin_children(Path(os.environ["TMPDIR"]))
    if args.pretend == "ranks":
        begin_rank()
    if args.pretend == "never-well":
        signal.pause()
    once = Path(args.config).parent / "was-taken"
    if args.pretend == "taken" and not once.exists():
        once.touch()
        with socket.socket() as other:
            other.bind(("127.0.0.1", start["port"]))
            other.listen()
            serve(start["port"], start["api-key"])
    serve(start["port"], "nobody's" if args.pretend == "follower" else start["api-key"])


def begin_children(folder: Path) -> None:
    """A child, a child in a session of its own, and one whose parent is gone; all ignore SIGTERM and our death."""
    (folder / "socket-of-a-rank").touch()
    for name in os.environ.get("PRETEND_SHARED", "").split():
        (Path("/dev/shm") / name).write_bytes(bytes(64))
        with open(Path("/dev/shm") / name, "r+b") as file:
            SHARED.append(mmap.mmap(file.fileno(), 64))
    for new_session in (False, True):
        child = subprocess.Popen(SLEEPER, stdout=subprocess.PIPE, start_new_session=new_session)
        assert child.stdout is not None
        child.stdout.readline()
    subprocess.run(["/bin/sh", "-c", "(trap '' TERM; exec sleep 1000) &"], check=True)


def begin_rank() -> None:
    title = "import ctypes, signal; ctypes.CDLL(None).prctl(15, b'sglang::scheduler'); print(flush=True); signal.pause()"
    rank = subprocess.Popen([sys.executable, "-c", title], stdout=subprocess.PIPE)
    assert rank.stdout is not None
    rank.stdout.readline()


def serve(port: int, key: str) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            knows = self.headers.get("Authorization") == f"Bearer {key}"
            self.send_response(200 if self.path == "/health" or knows else 401)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            return

    ThreadingHTTPServer.allow_reuse_address = False
    try:
        server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    except OSError as error:
        # As uvicorn says it; then SGLang hangs.
        print(f"ERROR: [Errno {error.errno}] error while attempting to bind on address ('127.0.0.1', {port}): address already in use")
        sys.stdout.flush()
        signal.pause()
    server.serve_forever()


if __name__ == "__main__":
    main()
