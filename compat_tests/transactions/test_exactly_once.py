"""Thousands of messages are copied in transactions while broker and copier are killed: each arrives once, in order.

``--messages 100000`` copies more of them, in larger transactions. The clients of
librdkafka speak transaction version 1, those in Java version 2.
"""

from __future__ import annotations

import os
import random
import threading
import time
import uuid
from collections.abc import Iterator

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from compat_tests.brokers import ApacheBroker, KbrokerBroker
from compat_tests.clients import skip_without
from compat_tests.transactions.conftest import OPTIONS
from compat_tests.transactions.participants import Participant, ParticipantError, committed_offsets, participant_of
from tests.patience import LONG

PARTITIONS = 2


@pytest.fixture
def own_broker(request: pytest.FixtureRequest) -> Iterator[ApacheBroker | KbrokerBroker]:
    """A broker that may be killed."""
    if request.config.getoption("--bootstrap"):
        pytest.skip("the broker is not ours to kill")
    is_apache = request.config.getoption("--broker") == "apache"
    node: ApacheBroker | KbrokerBroker = ApacheBroker(*OPTIONS) if is_apache else KbrokerBroker(*OPTIONS)
    yield node
    node.stop()


LIFE_SECONDS = 60
"""Seconds for which a copier lives; another goes on after it."""
HANGING_SECONDS = 90
"""Seconds after which a copier is killed that does not answer; another goes on in its place, too.

librdkafka 2.16 waits for ever in ``send_offsets_to_transaction``, whatever its time-out, when the group's coordinator
has died and left the metadata: the one that it remembers (``rk_coord_cache``) is then a broker that it has given up and
never connects to, and nothing looks at the limit of its request (``creq_ts_timeout``, ``rd_kafka_coord_req``). Only a
connection to another broker that comes or goes wakes it."""


class Copier:
    """A process that copies until it is killed or fails, and then another."""

    def __init__(self, client: str, bootstrap: str, source: str, target: str, messages: int, batch: int) -> None:
        self._messages, self._batch = messages, batch
        self._client, self._bootstrap, self._source, self._target = client, bootstrap, source, target
        self.group = f"copiers-of-{source}"
        """Its own: a static member that joins again is given what the one before it had, also of other topics."""
        self._current: Participant | None = None
        self._ended = threading.Event()
        self.lives = 0
        self.failures: list[str] = []
        self._thread = threading.Thread(target=self._live)
        self._thread.start()

    def _live(self) -> None:
        while not self._ended.is_set():
            self.lives += 1
            self._current = participant_of(self._client, self._bootstrap)
            if self._ended.is_set():  # whoever ended it may have killed the one before
                self._current.kill()
            try:
                producer = self._current.open("copier", timeout_ms=10_000, within=HANGING_SECONDS)
                producer.call(
                    "copy",
                    group=self.group,
                    instance="copier",
                    source=self._source,
                    target=self._target,
                    count=self._messages + 1,
                    batch=self._batch,
                    seconds=LIFE_SECONDS,
                    within=HANGING_SECONDS,
                )
            except ParticipantError as problem:
                self.failures.append(str(problem)[:300])
            self._current.kill()
            self._current.close()

    def kill(self) -> None:
        """SIGKILL in the middle of whatever it does; the next one starts at once."""
        if self._current is not None:
            self._current.kill()

    def end(self) -> None:
        """Kill the copier; none follows."""
        self._ended.set()
        self.kill()
        self._thread.join()


def _committed(bootstrap: str, group: str, topic: str) -> list[int]:
    """The copiers' committed offset of each partition of the source; nothing where the broker is away for a moment."""
    try:
        return committed_offsets(bootstrap, group, topic, timeout=20)
    except confluent_kafka.KafkaException:
        return [0] * PARTITIONS


@pytest.mark.parametrize("client", ["confluent-kafka", "java"])
@pytest.mark.parametrize("seed", range(1, 1 + int(os.environ.get("KBROKER_COPY_SEEDS", "1"))))
def test_a_copy_is_exact_while_everybody_is_killed(
    client: str, seed: int, own_broker: ApacheBroker | KbrokerBroker, pytestconfig: pytest.Config
) -> None:
    skip_without(client)
    if isinstance(own_broker, ApacheBroker) and client == "confluent-kafka":
        pytest.skip("Apache Kafka itself has stored two messages twice here, in transactions of version 1")
    messages = pytestconfig.getoption("--messages") or 2_000
    batch = max(2, messages // 10_000)
    pace = 3 if client == "java" else 1
    rng = random.Random(seed)
    bootstrap = own_broker.bootstrap
    source, target = (f"{name}-{uuid.uuid4().hex[:8]}" for name in ("source", "target"))
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for future in admin.create_topics([NewTopic(each, PARTITIONS, 1) for each in (source, target)]).values():
        future.result(LONG)
    helper = participant_of("confluent-kafka", bootstrap)
    wanted = [[f"{partition}-{each}" for each in range(messages // PARTITIONS)] for partition in range(PARTITIONS)]
    half = messages // PARTITIONS // 2

    def write(part: slice) -> None:
        producer = helper.open()
        for partition, values in enumerate(wanted):
            producer.begin()
            producer.send(source, partition, values[part])
            producer.call("commit")

    write(slice(half))
    copier = Copier(client, bootstrap, source, target, messages, batch)
    # After that they are left alone: clients take long to find a broker again, and not all brokers start quickly.
    last_kill = time.monotonic() + LONG + messages / 400
    progress, deadline = 0, time.monotonic() + LONG
    crashes = 0
    # Clients wait longer to try again the longer a broker was away: one that starts slowly must be left alone longer.
    outage = 1.0
    try:
        # The marker of the first half's transaction has an offset, too.
        while min(committed := _committed(bootstrap, copier.group, source)) <= messages // PARTITIONS:
            if sum(committed) > progress:
                progress, deadline = sum(committed), time.monotonic() + LONG
            assert time.monotonic() < deadline, f"nothing comes after {progress}: {copier.failures}"
            time.sleep(rng.uniform(0.3, 1.2) * pace * max(1.0, outage))
            if time.monotonic() > last_kill:
                continue
            if rng.random() < 0.6 or copier.lives == 1:
                copier.kill()
            if rng.random() < 0.4 or not crashes:
                begun = time.monotonic()
                own_broker.crash()
                outage = time.monotonic() - begun
                crashes += 1
                if crashes == 1:  # or all might be copied before anybody is killed
                    write(slice(half, None))
        copier.end()
        for partition, values in enumerate(wanted):
            helper.await_committed(target, partition, values)
    finally:
        copier.end()
        helper.close()
    print(f"{copier.lives} copiers, {crashes} crashes of the broker, failures: {copier.failures}")
    assert copier.lives > 1 and crashes, "nobody was killed"
