"""Tests on a real SLURM of one machine: skipped where none is up, failed where GYRE_REQUIRE says it must be there.

They run as root, who alone can switch a node off; jobs of an unprivileged user are submitted through `user="nobody"`.
"""

import os
import shutil
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.fakes.own_folder import own_folder
from tests.fakes.required import need
from tests.slurm.cluster import Cluster, folder_of_this_machine, problem

HAS_FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.stash[HAS_FAILED] = item.stash.get(HAS_FAILED, False) or report.failed
    return report


@pytest.fixture(scope="session")
def standing_cluster() -> Cluster:
    folder = folder_of_this_machine()
    need("slurm", problem(folder))
    return Cluster(folder)


@pytest.fixture
def cluster(standing_cluster: Cluster, shared_folder: Path) -> Iterator[Cluster]:
    """The cluster; what the test did to it is undone afterwards, and before the folder goes that its jobs write to."""
    try:
        yield standing_cluster
    finally:
        standing_cluster.clean_up()


@pytest.fixture
def shared_folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder that every node sees and the unprivileged user may write; pytest's own are closed to others. That of a test that failed is
    kept, among pytest's own."""
    folder = own_folder("slurm-test", Path("/tmp"))
    if os.geteuid() == 0:
        shutil.chown(folder, "nobody", "nogroup")
    try:
        yield folder
    finally:
        if request.node.stash.get(HAS_FAILED, False):
            print(f"{folder} is kept as {shutil.move(folder, tmp_path_factory.mktemp('failed'))}")
        else:
            shutil.rmtree(folder)  # which fails where something still writes
