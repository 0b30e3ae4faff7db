"""Subscriptions, and the times at which a client may ask and push: Kafka's rules, without a node."""

from __future__ import annotations

import pytest

from kbroker.config.client_metrics import UnusableExpression
from kbroker.errors import ApiError
from kbroker.errors import ErrorCode as E
from kbroker.observe.telemetry.instances import (
    MOST_INSTANCES,
    Instance,
    Instances,
    check_get,
    check_instance_id,
    check_push,
)
from kbroker.observe.telemetry.subscriptions import ClientAttributes, parse_subscription, subscription_id, wanted_of
from kbroker.types import ZERO_UUID, Uuid
from kbroker.wire.messages.client_telemetry import PushTelemetryRequest

WHO = Uuid(bytes(range(16)))
CLIENT = ClientAttributes("AAECAwQFBgcICQoLDA0ODw", "app-1", "apache-kafka-java", "4.3.1", "10.0.0.7", "40000")


@pytest.mark.parametrize(
    ("match", "meant"),
    [
        ("", True),
        ("client_id=app-.*", True),
        ("client_id=app", False),
        ("client_id=app-1,client_software_name=librdkafka", False),
        ("client_software_version=4\\..*,client_source_port=4[0-9]+", True),
        ("client_source_address=10\\.0\\.0\\.[0-9]", True),
        ("client_instance_id=AAEC.*", True),
    ],
)
def test_whom_a_subscription_means(match: str, meant: bool) -> None:
    assert parse_subscription("s", {"metrics": "*", "match": match}).matches(CLIENT) is meant


def test_a_client_without_an_id_matches_no_expression() -> None:
    nameless = CLIENT._replace(client_id=None)
    assert not parse_subscription("s", {"match": "client_id=.*"}).matches(nameless)


def test_what_re2_does_not_know_is_said() -> None:
    with pytest.raises(UnusableExpression):
        parse_subscription("s", {"match": "client_id=(?!b)a"})


def test_subscriptions_are_put_together() -> None:
    mine = [
        parse_subscription("a", {"metrics": "x.,y.", "interval.ms": "5000"}),
        parse_subscription("b", {"metrics": "y.,z.", "interval.ms": "7000"}),
        parse_subscription("c", {"metrics": "*", "interval.ms": "100", "match": "client_id=other"}),
    ]
    wanted = wanted_of(mine, CLIENT, WHO)
    assert (sorted(wanted.metrics), wanted.interval_ms) == (["x.", "y.", "z."], 5000)
    everything = wanted_of([*mine, parse_subscription("d", {"metrics": "*"})], CLIENT, WHO)
    assert everything.metrics == ("*",) and everything.subscription_id != wanted.subscription_id
    assert wanted_of([], CLIENT, WHO)[1:] == ((), 300_000)


def test_the_id_is_signed_and_differs_by_client() -> None:
    assert subscription_id(["*"], 1000, WHO) != subscription_id(["*"], 1000, Uuid(bytes(15) + b"\x05"))
    assert all(-(2**31) <= subscription_id(["*"], at, WHO) < 2**31 for at in range(100, 200))


def subscribed(interval_ms: int = 1000) -> Instances:
    instances = Instances()
    instances.subscriptions["s"] = parse_subscription("s", {"metrics": "*", "interval.ms": str(interval_ms)})
    instances.changed()
    return instances


def known(instances: Instances, now: float, who: Uuid = WHO) -> Instance:
    return instances.instance(who, lambda: CLIENT, now)[0]


def push(instance: Instance, now: float, most: int = 100, **fields: object) -> E:
    values = {"client_instance_id": WHO, "subscription_id": instance.wanted.subscription_id, "metrics": b"x"} | fields
    try:
        check_push(instance, PushTelemetryRequest(**values), now, most)  # type: ignore[arg-type]
    except ApiError as error:
        return error.code
    return E.NONE


def get(instance: Instance, now: float) -> E:
    try:
        check_get(instance, now)
    except ApiError as error:
        return error.code
    return E.NONE


def test_a_client_pushes_once_in_an_interval() -> None:
    client = known(subscribed(), 50)
    assert get(client, 50) == E.NONE
    assert get(client, 50.5) == E.THROTTLING_QUOTA_EXCEEDED
    assert push(client, 50.6) == E.NONE  # the first one comes at any time
    assert push(client, 51.5) == E.THROTTLING_QUOTA_EXCEEDED
    assert push(client, 51.6) == E.NONE
    assert push(client, 51.7, terminating=True) == E.NONE


def test_nothing_comes_after_the_last_push() -> None:
    client = known(subscribed(), 50)
    client.terminating = True
    assert push(client, 60) == E.INVALID_REQUEST


def test_a_push_is_judged() -> None:
    instances = subscribed()
    client = known(instances, 50)
    assert push(client, 50, subscription_id=client.wanted.subscription_id + 1) == E.UNKNOWN_SUBSCRIPTION_ID
    assert push(client, 52, compression_type=5) == E.UNSUPPORTED_COMPRESSION_TYPE
    assert push(client, 54, compression_type=-1) == E.UNSUPPORTED_COMPRESSION_TYPE
    assert push(client, 56, metrics=b"x" * 101) == E.TELEMETRY_TOO_LARGE
    for reserved in (ZERO_UUID, Uuid(bytes(15) + b"\x01")):
        with pytest.raises(ApiError):
            check_instance_id(reserved)


def test_a_client_asks_at_once_after_an_unknown_subscription() -> None:
    client = known(subscribed(), 50)
    assert get(client, 50) == E.NONE
    client.last_error = E.UNKNOWN_SUBSCRIPTION_ID
    assert get(client, 50.1) == E.NONE


def test_a_change_of_subscriptions_is_seen_with_the_next_request() -> None:
    instances = subscribed()
    before = known(instances, 50).wanted
    instances.subscriptions["t"] = parse_subscription("t", {"metrics": "*", "interval.ms": "200"})
    instances.changed()
    client = known(instances, 50.1)
    assert client.wanted.interval_ms == 200 and client.wanted.subscription_id != before.subscription_id
    assert get(client, 50.1) == E.NONE  # the present subscriptions come without waiting


def test_clients_are_forgotten() -> None:
    instances = subscribed()
    known(instances, 0)
    known(instances, 59, Uuid(bytes(15) + b"\x02"))
    known(instances, 61, Uuid(bytes(15) + b"\x03"))
    assert WHO not in instances and len(instances) == 2
    for at in range(MOST_INSTANCES + 10):
        known(instances, 62, Uuid(at.to_bytes(8, "big") + bytes(8)))
    assert len(instances) == MOST_INSTANCES
