"""Counts and their text: quantiles, rates, traffic, the exposition."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from kbroker.config.listeners import METRICS_LISTENER, http_address
from kbroker.errors import FatalError
from kbroker.observe.metrics import exposition
from kbroker.observe.metrics.dialect import Dialect, Kind
from kbroker.observe.metrics.family import Family
from kbroker.observe.metrics.histogram import Histogram
from kbroker.observe.metrics.rates import Rates
from kbroker.observe.metrics.share_traffic import MOST_GROUPS, ShareTraffic
from kbroker.observe.metrics.traffic import Traffic


@given(st.lists(st.integers(0, 2**44), min_size=1, max_size=200))
def test_a_quantile_is_at_most_an_eighth_too_high(durations: list[int]) -> None:
    histogram = Histogram()
    for duration in durations:
        histogram.observe(duration)
    durations.sort()
    shares = (0.5, 0.95, 1.0)
    for share, found in zip(shares, histogram.quantiles(shares), strict=True):
        true = durations[max(0, math.ceil(share * len(durations)) - 1)]
        assert true <= found
        assert found <= true * 1.125 + 1
    assert histogram.count == len(durations)
    assert histogram.total == sum(durations)


def test_quantiles_follow_what_is_observed_lately() -> None:
    histogram = Histogram()
    for _ in range(1000):
        histogram.observe(10_000_000)
    assert histogram.quantiles([0.5])[0] >= 10_000_000
    for _ in range(12):
        for _ in range(10):
            histogram.observe(1000)
        (median,) = histogram.quantiles([0.5])
    assert median < 10_000
    assert Histogram().quantiles([0.5, 0.99]) == [0.0, 0.0]


def test_a_rate_is_of_the_time_since_the_last_scrape() -> None:
    now = 100.0
    rates = Rates(lambda: now)
    assert rates.of("x", 50) == 0
    now += 10
    assert rates.of("x", 80) == 3
    now += 5
    assert rates.of("x", 0) == 0, "a count that began anew"
    assert rates.of("x", 7) == 0, "no time has passed"


def test_the_traffic_of_a_deleted_topic_stays_in_the_sum() -> None:
    traffic = Traffic()
    traffic.of("a").appended(100, 3)
    traffic.of("b").appended(10, 1, batches=2)
    traffic.forget("a")
    traffic.forget("never")
    assert list(traffic.topics) == ["b"]
    assert (traffic.total("bytes_in"), traffic.total("messages_in"), traffic.total("produces")) == (110, 4, 3)


def test_fetches_are_counted_where_they_have_records_or_fail() -> None:
    traffic = Traffic()
    traffic.of("b")
    answers = [
        SimpleNamespace(error_code=0, records=b"12345"),
        SimpleNamespace(error_code=6, records=None),
        SimpleNamespace(error_code=0, records=b""),
        SimpleNamespace(error_code=100, records=None),
        SimpleNamespace(error_code=3, records=None),
    ]
    traffic.sent(["a", "b", "b", None, "a-stranger-made-this-up"], answers)
    assert traffic.of("a").bytes_out == 5 and traffic.of("a").fetches == 1
    assert traffic.of("b").failed_fetches == 1 and traffic.of("b").fetches == 0
    assert set(traffic.topics) == {"a", "b"}, "a topic that does not exist takes no memory"


@given(st.text(), st.floats(allow_nan=False, allow_infinity=False, width=32))
def test_any_label_and_value_can_be_read_again(text: str, value: float) -> None:
    family = Family(dict.fromkeys(Dialect, "a_metric"), Kind.GAUGE, "Something.", ("topic",))
    page = exposition.head(family, Dialect.STRIMZI) + "".join(
        exposition.lines(family, Dialect.STRIMZI, [((text,), value)])
    )
    if any(character in text for character in "\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"):
        assert page.count("\n") == 3  # the reader below takes these for ends of lines; Prometheus does not
        return
    (found,) = text_string_to_metric_families(page)
    (sample,) = found.samples
    assert sample.labels.get("topic", "") == text
    assert sample.value == pytest.approx(value)


@pytest.mark.parametrize(
    ("value", "address"),
    [
        ("http://127.0.0.1:9404", ("127.0.0.1", 9404)),
        ("http://[::1]:0/", ("::1", 0)),
        ("http://:8080", ("", 8080)),
        ("", None),
        (None, None),
    ],
)
def test_the_address_of_the_page(value: str | None, address: tuple[str, int] | None) -> None:
    raw = {} if value is None else {"prometheus.metrics.reporter.listener": value}
    assert http_address(raw, METRICS_LISTENER) == address


@pytest.mark.parametrize(
    "value", ["9404", "https://127.0.0.1:9404", "http://127.0.0.1:99999", "http://a:b:1", "tcp://x"]
)
def test_another_form_of_address_is_refused(value: str) -> None:
    with pytest.raises(FatalError, match=r"prometheus\.metrics\.reporter\.listener: .* http://HOST:PORT"):
        http_address({"prometheus.metrics.reporter.listener": value}, METRICS_LISTENER)


def test_groups_whose_fetches_are_counted_are_bounded() -> None:
    """Clients name any group; those that go on fetching keep their counts."""
    traffic = ShareTraffic()
    for number in range(2 * MOST_GROUPS):
        traffic.fetch(f"once-{number}", 0, 1)
        traffic.fetch("again", 1, 1)
    assert len(traffic.fetched) == MOST_GROUPS
    assert traffic.fetched["again"].count == 2 * MOST_GROUPS
