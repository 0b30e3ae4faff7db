"""Exactly once with state and a repartition, while records come: instances and nodes are killed in the midst of it."""

from __future__ import annotations

import random
import shutil
import threading
from pathlib import Path

import pytest
from confluent_kafka import Producer

from compat_tests.brokers import Broker
from compat_tests.kafka_streams.app import StreamsApp
from compat_tests.kafka_streams.group_configs import DEAD_AFTER_MS, configure
from compat_tests.kafka_streams.test_kafka_streams import coordinator
from compat_tests.kafka_streams.words import ROUNDS, Steps, counted
from compat_tests.works_with.nodes import node_count, without_a_node
from tests.patience import LONG

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(
        any(shutil.which(program) is None for program in ("java", "javac", "mvn")), reason="needs a JDK and Maven"
    ),
    pytest.mark.skipif(not ROUNDS, reason="minutes of kills: KBROKER_COMPAT_STREAMS_FULL=3 for three rounds"),
]


class Lines:
    """Lines that are written all the time, by a thread; ``words`` is how often each word was written."""

    def __init__(self, bootstrap: str, seed: int) -> None:
        self.words: dict[str, int] = {}
        self._chance = random.Random(seed)
        self._ended = threading.Event()
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})
        self._failed: list[str] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(0.02):
            words = self._chance.choices("abcdefgh", k=self._chance.randrange(1, 4))
            for word in words:
                self.words[word] = self.words.get(word, 0) + 1
            self._producer.produce("lines", " ".join(words), on_delivery=self._delivered)
            self._producer.poll(0)

    def _delivered(self, error: object, message: object) -> None:
        if error is not None:
            self._failed.append(str(error))

    def end(self) -> None:
        """Stop, and have all of it acknowledged."""
        self._ended.set()
        self._thread.join()
        assert self._producer.flush(LONG) == 0 and not self._failed, self._failed


@pytest.mark.parametrize("store", ["memory", "disk"])
@pytest.mark.parametrize("protocol", ["streams", "classic"])
def test_each_word_is_counted_once(
    broker: Broker, bootstrap: str, apps: dict[str, StreamsApp], tmp_path: Path, protocol: str, store: str
) -> None:
    """An instance that is killed comes back to the directory that it has left, and its place is taken meanwhile."""
    group = f"killed-{protocol}-{store}"
    if protocol == "streams":
        configure(bootstrap, group, "streams.session.timeout.ms", f"{DEAD_AFTER_MS}")
    settings = (
        f"group.protocol={protocol}",
        "processing.guarantee=exactly_once_v2",
        f"store={store}",
        "num.standby.replicas=1" if protocol == "classic" else "poll.ms=100",
        f"consumer.session.timeout.ms={DEAD_AFTER_MS}" if protocol == "classic" else "retry.backoff.ms=100",
    )

    def start(name: str) -> None:
        apps[name] = StreamsApp(bootstrap, group, tmp_path / "state", name, *settings)

    names = ("one", "two")
    for name in names:
        start(name)
    lines, steps = Lines(bootstrap, seed=ROUNDS), Steps(bootstrap)

    def goes_on(records: int = 100) -> None:
        goal = len(steps.read) + records
        assert steps.go_on(lambda: len(steps.read) >= goal), [app.ask("tasks") for app in apps.values()]
        counted(steps.read)

    try:
        goes_on()
        for number in range(ROUNDS):
            name = names[number % 2]
            apps[name].kill()
            goes_on()
            start(name)
            with without_a_node(broker, coordinator(bootstrap, group)):
                goes_on()
            goes_on()
            # An instance and a node at the same time, whichever it is.
            apps[names[1 - number % 2]].kill()
            with without_a_node(broker, number % node_count(broker) + 1):
                start(names[1 - number % 2])
                goes_on()
    finally:
        lines.end()
    wanted = sum(lines.words.values())
    assert steps.go_on(lambda: len(steps.read) >= wanted), [app.ask("tasks") for app in apps.values()]
    for app in apps.values():
        app.close()
    steps.go_on(lambda: len(steps.read) > wanted, seconds=3)
    steps.close()
    assert counted(steps.read) == lines.words
