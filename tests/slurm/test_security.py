"""A run on a shared cluster: another user on its nodes gets nothing without the token, and no file of the run holds a secret of ours."""

import json
import os
from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster, JobState
from tests.slurm.runs import SlurmRun

pytestmark = pytest.mark.timeout(300, method="signal")
PLANTED = "hf_planted-secret-that-nobody-may-write-down"
ASK = """
import json, sys, urllib.error, urllib.request
for url in sys.argv[1:]:
    for path, body in (("/", None), ("/messages", b"{}"), ("/generate", b"{}"), ("/status", None), ("/v1/models", None)):
        for token in (None, "Bearer wrong"):
            request = urllib.request.Request(url + path, data=body, headers={} if token is None else {"Authorization": token})
            try:
                code = urllib.request.urlopen(request, timeout=5).status
            except urllib.error.HTTPError as error:
                code = error.code
            except OSError as error:
                code = type(error).__name__
            print(json.dumps([url + path, token, code]))
"""
AS_NOBODY = ("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups")


def listening(cluster: Cluster, host: str) -> set[str]:
    """host:port of everything that listens on a node's own network, its slurmd aside."""
    lines = cluster.inside(host, "ss", "-Hltnp").stdout.splitlines()
    return {line.split()[3] for line in lines if "python" in line}


def test_another_user_gets_nothing_from_any_port_of_a_run(cluster: Cluster, shared_folder: Path):
    run = SlurmRun(cluster, shared_folder, "algo.updates=100")  # cancelled when everything was asked
    run.wait_event("call_ended")
    host, other = run.first_host, run.last_host
    named = {entry["url"] for entry in json.loads(run.folder.endpoints.read_text())["entries"] if entry["url"]}
    urls = {f"http://{address}" for address in listening(cluster, host) | listening(cluster, other)}
    assert named <= urls, "the directory names ports that nobody holds"
    asked = cluster.inside(other, *AS_NOBODY, "/usr/bin/python3", "-c", ASK, *sorted(urls), within_s=120)
    answers = [json.loads(line) for line in asked.stdout.splitlines()]
    assert len(answers) == 10 * len(urls), asked.stderr
    let_in = [answer for answer in answers if answer[2] not in (401, 403, 404, 405)]
    assert not let_in
    assert sum(answer[2] == 401 for answer in answers) >= 2 * len(named), "most of these are doors, not walls"
    folder = cluster.inside(other, *AS_NOBODY, "ls", str(run.folder.root))
    assert folder.returncode and "denied" in folder.stderr.lower()


def test_no_file_of_a_run_holds_a_secret_of_its_environment(cluster: Cluster, shared_folder: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("HF_TOKEN", "WANDB_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.setitem(cluster.environ, name, PLANTED)
    run = SlurmRun(cluster, shared_folder)
    assert run.wait_over() is JobState.completed, run.out()
    token = run.folder.token.read_bytes().strip()
    files = [path for path in run.folder.root.rglob("*") if path.is_file()]
    assert len(files) > 20
    assert not [path for path in files if PLANTED.encode() in path.read_bytes()]
    assert [path for path in files if token in path.read_bytes()] == [run.folder.token]
    assert run.folder.token.stat().st_uid == os.getuid()
