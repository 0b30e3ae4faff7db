"""Each record is once in a table in a real S3 server, wherever a follower is killed and whatever the network does."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")
pytest.importorskip("obstore")

from compat_tests.tables.versitygw import BUCKET, running_versitygw
from kbroker.errors import FatalError
from kbroker.tables.follower import Settings
from tests.tables.model_store import SECRET, StoredDelta, StoredIceberg, follow_through, options
from tests.tables.model_topic import Killed, ModelTopic, check_once, follow
from tests.tables.store_proxy import Fault, Proxy, proxy_before

KEY = "some-key"
JSON = Settings(value_format="json", batch_records=7, max_bytes=1)
FAULTS = [Fault.NONE, Fault.SLOW, Fault.REFUSE, Fault.DROP, Fault.REPEAT, Fault.AWAY]
KINDS = ["delta", "iceberg"]
_numbers = itertools.count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_versitygw(tmp_path_factory.mktemp("versitygw"), KEY, SECRET) as address:
        yield address


@pytest.fixture(scope="module")
def proxy(server: str) -> Iterator[Proxy]:
    with proxy_before(server) as running:
        yield running


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of catalogs."""
    return tmp_path_factory.mktemp("catalogs")


def stored(kind: str, folder: Path, proxy: Proxy, server: str) -> StoredDelta | StoredIceberg:
    """The place of a table that is not there yet."""
    number, straight = next(_numbers), f"http://{server}"
    url = f"s3://{BUCKET}/{number}"
    if kind == "delta":
        return StoredDelta(f"{url}/t", proxy.url, straight)
    return StoredIceberg(folder / f"catalog{number}.db", url, proxy.url, straight)


def orders() -> ModelTopic:
    """Two partitions; values are good, bad and wider than those before."""
    topic = ModelTopic()
    topic.append(0, *(b'{"id": %d}' % number for number in range(8)), b"none", gap=1)
    topic.append(1, *(b'{"id": 2, "new": {"a": [1]}}' for _ in range(3)), b"{")
    return topic


def kill_at(moment: int, now: int) -> None:
    if now == moment:
        raise Killed


@pytest.mark.parametrize("kind", KINDS)
def test_killed_at_every_step(kind: str, folder: Path, proxy: Proxy, server: str) -> None:
    topic = orders()
    for moment in itertools.count(1):
        place = stored(kind, folder, proxy, server)
        try:
            follow(topic, place, JSON, lambda now, moment=moment: kill_at(moment, now))  # type: ignore[misc]
        except Killed:
            follow(topic, place, JSON)
            check_once(topic, place)
            continue
        break
    assert moment > 8


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    faults=st.lists(st.sampled_from(FAULTS), min_size=5, max_size=60),
    every=st.integers(1, 4),
    kills=st.lists(st.integers(1, 9), max_size=3),
)
def test_any_faults_any_kills(
    kind: str, folder: Path, proxy: Proxy, server: str, faults: list[Fault], every: int, kills: list[int]
) -> None:
    topic, place = orders(), stored(kind, folder, proxy, server)
    proxy.plan("", *faults, every=every)
    for moment in kills:
        try:
            follow_through(topic, place, JSON, lambda now, moment=moment: kill_at(moment, now))  # type: ignore[misc]
        except Killed:
            topic.append(0, b'{"id": %d}' % moment)
    follow_through(topic, place, JSON)
    check_once(topic, place)


@pytest.mark.parametrize("kind", KINDS)
def test_answers_that_come_too_late(kind: str, folder: Path, proxy: Proxy, server: str) -> None:
    """A commit that the store has done is not done again, though its client has given up."""
    topic, place = orders(), stored(kind, folder, proxy, server)
    place.timeout = 2
    none = Fault.NONE
    proxy.plan("PUT |POST ", *[none] * 4, Fault.LATE, none, Fault.LATE, none, none, Fault.LATE)
    follow_through(topic, place, JSON)
    check_once(topic, place)
    assert proxy.came() == [Fault.LATE] * 3


@pytest.mark.parametrize("kind", KINDS)
def test_followers_at_the_same_time(kind: str, folder: Path, proxy: Proxy, server: str) -> None:
    """Of three at a time, each with its own view of the topic, one commits what another has not."""
    topic, place = orders(), stored(kind, folder, proxy, server)
    proxy.plan("", Fault.SLOW, Fault.NONE, Fault.DROP, every=5, again=True)
    failed: list[BaseException] = []

    def run() -> None:
        try:
            follow_through(topic, place, Settings(value_format="json", batch_records=1, max_bytes=1))
        except FatalError as error:
            failed.append(error)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not failed
    proxy.plan("", Fault.NONE)
    follow_through(topic, place, JSON)
    check_once(topic, place)


def test_wrong_credentials_end_in_one_line_without_them(proxy: Proxy, server: str) -> None:
    from kbroker.tables.delta import DeltaTarget
    from kbroker.tables.stores import StoreOptions

    for told_options in (
        options(f"http://{server}", "another-key"),
        options(f"http://{server}") | {"AWS_REGION": "mars"},
    ):
        with pytest.raises(FatalError) as refused:
            DeltaTarget(f"s3://{BUCKET}/secret/t", StoreOptions(told_options)).load([0])
        told = str(refused.value)
        assert told.startswith(f"delta:s3://{BUCKET}/secret/t: ") and "\n" not in told
        assert SECRET not in told and told_options["AWS_ACCESS_KEY_ID"] not in told
