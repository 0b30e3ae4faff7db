"""Clients that ask foolish things in a loop, while brokers are killed: the controller notices each at once.

`cluster-foolish-client` simulates the same. KBROKER_FOOLISH_ROUNDS sets how often a broker is killed under each kind of
them. Without it, a broker is killed once under a flood.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from kbroker.client.topics import NewTopic, create_topics
from kbroker.sim.foolish_client import described, forwarded_frames, frame_of, malformed
from kbroker.testing import ClusterNode, RunningCluster, running_cluster
from kbroker.wire.messages.elect_leaders import ElectLeadersRequest
from kbroker.wire.messages.topics import CreatableTopic, CreateTopicsRequest
from tests.patience import LONG, eventually

pytestmark = [pytest.mark.slow, pytest.mark.everything]

ROUNDS = int(os.environ.get("KBROKER_FOOLISH_ROUNDS", "0"))
KINDS = ["flood", *(["large", "old", "malformed", "never whole"] if ROUNDS else [])]

TOPICS = 20_000
"""In a large request, each of which keeps a controller busy for a second or more."""

Frames = Callable[[], bytes]


@pytest.fixture(scope="module")
def shared() -> Iterator[RunningCluster]:
    with running_cluster(3) as cluster, cluster.client() as client:
        create_topics(client, [NewTopic("t", 6, 3)])
        yield cluster


@pytest.fixture
def cluster(shared: RunningCluster) -> RunningCluster:
    shared.heal()
    return shared


class Fools:
    """Threads, each with a connection on which it asks one thing after the other."""

    def __init__(
        self, addresses: list[str], frames: Frames, pause: float, *, count: int = 1, is_answered: bool = True
    ) -> None:
        """``is_answered``: whether they ask what has an answer."""
        self.answers = 0
        self._is_answered = is_answered
        self._stop = threading.Event()
        self._frames = frames
        self._pause = pause
        self._threads = [
            threading.Thread(target=self._run, args=(address,), daemon=True) for address in addresses * count
        ]

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Until the end of the block; they are at it when it begins."""
        for thread in self._threads:
            thread.start()
        try:
            eventually(lambda: not self._is_answered or self.answers, "they have an answer")
            self._stop.wait(4)  # longer than a controller looks after a broker whose connection has ended
            yield
        finally:
            self._stop.set()
            for thread in self._threads:
                thread.join(LONG)

    def _run(self, address: str) -> None:
        host, _, port = address.partition(":")
        while not self._stop.is_set():
            patience = 60 if self._is_answered else 2
            with contextlib.suppress(OSError), socket.create_connection((host, int(port)), patience) as connection:
                while not self._stop.wait(self._pause):
                    connection.sendall(self._frames())
                    if not connection.recv(1 << 20):
                        break
                    self.answers += 1
            self._stop.wait(self._pause)


def led_by(cluster: RunningCluster, node: ClusterNode) -> list[int]:
    """The partitions that a broker leads, once it leads some: brokers may hear of an election later than its asker."""
    deadline = time.monotonic() + LONG
    with cluster.client() as client:
        while True:
            client.ask_controller(ElectLeadersRequest(topic_partitions=None, timeout_ms=5000), lambda _: None)
            led = [partition for partition in range(6) if cluster.leader_of("t", partition) is node]
            if led:
                return led
            assert time.monotonic() < deadline, f"{node} leads nothing"


def reason_for_fencing(cluster: RunningCluster) -> str:
    """By the log of the active controller: why it fences a broker that leads something and is killed."""
    while True:
        active = cluster.controller
        killed = next(node for node in cluster.nodes if node.id != active.id)
        led = led_by(cluster, killed)
        before = len(active.log)
        killed.kill()
        assert all(cluster.leader_of("t", partition).id != killed.id for partition in led)
        # The line is there before there are other leaders, if the controller is still the same.
        told = re.search(rf"broker {killed.id} (.*) and is fenced", active.log[before:])
        cluster.heal()
        if told is not None:
            return told[1]
        # Another has been elected, which has no connection of the broker's that could end.
        assert cluster.controller.id != active.id, f"{active} does not say why"


def _any(rng: random.Random) -> Frames:
    frames = list(itertools.chain.from_iterable(forwarded_frames().values()))
    return lambda: rng.choice(frames)


def _large() -> Frames:
    topics = [CreatableTopic(name=f"{number:030}", num_partitions=-1) for number in range(TOPICS)]
    frame = frame_of(7, CreateTopicsRequest(topics=topics, validate_only=True))
    return lambda: frame


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_broker_is_noticed_in_spite_of_foolish_clients(cluster: RunningCluster, kind: str) -> None:
    """Its connection has ended and its port refuses others: nobody waits for the end of its session."""
    rng = random.Random(kind)
    addresses = [node.bootstrap_servers for node in cluster.nodes]
    monitored = [frame_of(version, described()) for version in (0, 1, 2)]
    anything = _any(rng)
    fools = {
        "old": lambda: Fools(addresses, lambda: rng.choice(monitored), 0.05),
        "malformed": lambda: Fools(addresses, lambda: malformed(rng), 0.02),
        "never whole": lambda: Fools(addresses, lambda: anything()[:-3], 0.02, count=5, is_answered=False),
        "flood": lambda: Fools(addresses, anything, 0.002, count=10),
        "large": lambda: Fools(addresses, _large(), 0.0),
    }
    for _ in range(max(1, ROUNDS)):
        with fools[kind]().at_work():
            assert reason_for_fencing(cluster) == "does not run any more"
