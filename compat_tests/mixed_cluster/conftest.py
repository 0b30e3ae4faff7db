"""Two clusters: Apache Kafka's quorum followed by kbroker, and kbroker's followed by Apache Kafka."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from compat_tests.mixed_cluster import view
from compat_tests.mixed_cluster.nodes import JvmNode, KbrokerNode, Node, metadata_files, remove
from tests.patience import eventually

EARLY = [f"early-{number}" for number in range(8)]


@dataclass
class Cluster:
    """Node 1 is broker and the only voter, node 2 a broker of the other kind that follows its metadata."""

    nodes: tuple[Node, Node]
    bootstrap: str
    snapshots: dict[str, bytes]
    """Those that node 1 had while node 2 started for the first time, by file name."""

    @property
    def voter(self) -> Node:
        """Node 1."""
        return self.nodes[0]

    @property
    def follower(self) -> Node:
        """Node 2."""
        return self.nodes[1]

    def await_whole(self) -> None:
        """Wait until both nodes say that both live."""
        eventually(lambda: all(view.brokers(node) == [1, 2] for node in self.nodes), "both brokers to be unfenced")


class Snapshots:
    """The snapshots of a node's metadata log, kept as they come: each is replaced by the next, perhaps very soon."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._found: dict[str, bytes] = {}
        self._over = threading.Event()

    @contextmanager
    def kept(self) -> Iterator[dict[str, bytes]]:
        """All that there are at any time in the block, by file name."""
        thread = threading.Thread(target=self._watch)
        thread.start()
        try:
            yield self._found
        finally:
            self._over.set()
            thread.join()

    def _watch(self) -> None:
        while True:
            is_over = self._over.is_set()
            for file in metadata_files(self._node, ".checkpoint"):
                # The one with the number 0 comes from formatting.
                if int(file.name[:20]) and file.name not in self._found:
                    with suppress(FileNotFoundError):
                        self._found[file.name] = file.read_bytes()
            if is_over:
                return
            self._over.wait(0.01)


@pytest.fixture(scope="session")
def startable(request: pytest.FixtureRequest) -> None:
    """Both kinds can be started here."""
    if request.config.getoption("--bootstrap") or request.config.getoption("--broker") == "apache":
        pytest.skip("these tests start nodes of both kinds themselves")
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")


@pytest.fixture(scope="session", params=["jvm-quorum", "kbroker-quorum"])
def running(
    startable: None, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """A cluster for many tests."""
    path: Path = tmp_path_factory.mktemp(str(request.param))
    voter: Node
    follower: Node
    if request.param == "jvm-quorum":
        voter = JvmNode(1, path / "jvm")
        follower = KbrokerNode(2, path / "kbroker", voter)
    else:
        voter = KbrokerNode(1, path / "kbroker")
        follower = JvmNode(2, path / "jvm", voter)
    try:
        voter.start()
        for number, name in enumerate(EARLY):
            view.create(voter, name, [[1]] * (number + 1), retention_ms=str(1_000_000 + number))

        with Snapshots(voter).kept() as snapshots:
            eventually(lambda: snapshots, "a snapshot")
            follower.start()
        yield Cluster((voter, follower), f"127.0.0.1:{voter.port},127.0.0.1:{follower.port}", snapshots)
    finally:
        remove(follower)
        remove(voter)


@pytest.fixture
def cluster(running: Cluster) -> Iterator[Cluster]:
    """Both nodes are there; what they logged meanwhile is shown with a test that fails."""
    for node in running.nodes:
        node.start()  # if a test that failed has left it stopped
    running.await_whole()
    before = {node: len(node.log()) for node in running.nodes}
    yield running
    for node, length in before.items():
        text = node.log()
        lines = (text[length:] if len(text) >= length else text).splitlines()
        print(f"--- node {node.node_id} ({type(node).__name__})", *lines[-40:], sep="\n")
