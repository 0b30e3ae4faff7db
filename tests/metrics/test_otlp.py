"""Metrics for OpenTelemetry: the names of figures, buckets of histograms, lines."""

from __future__ import annotations

import bisect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.config.otlp import OtlpSettings, endpoint_of, otlp_settings
from kbroker.errors import FatalError
from kbroker.observe.metrics.catalogue import all_families
from kbroker.observe.metrics.dialect import Dialect, Kind
from kbroker.observe.metrics.histogram import Histogram, bound
from kbroker.observe.metrics.otlp import NAMES, PERCENTILES, TOTALS, Buckets, Line, Point, Shape, metrics_of

TRAFFIC = "kafka_server_brokertopicmetrics_"


def translated(*lines: Line) -> dict[str, list[Point]]:
    """The points of all metrics by name; each line has been written and read."""
    metrics = [metric for line in lines for metric in metrics_of(Line.decode(line.encode()))]
    found: dict[str, list[Point]] = {}
    for metric in metrics:
        found.setdefault(metric.name, []).extend(metric.points)
    return found


def line(name: str, labels: list[str], *samples: tuple[list[str], float], shape: Shape = Shape.GAUGE) -> Line:
    return Line(name, shape, "Help.", labels, 5, list(samples))


def test_every_name_is_of_a_family() -> None:
    families = {family.names[Dialect.STRIMZI]: family for family in all_families()}
    assert not {*NAMES, *TOTALS, *PERCENTILES} - families.keys()
    assert all(families[name].labels == ("topic",) and families[name].kind is Kind.COUNTER for name in TOTALS)
    assert all(families[name].kind is Kind.SUMMARY for name in PERCENTILES)


def test_a_total_has_a_name_of_its_own_so_that_sums_over_topics_are_right() -> None:
    found = translated(
        line(f"{TRAFFIC}bytesin_total", ["topic"], ([""], 11), (["a"], 4), (["b"], 7)),
        line(f"{TRAFFIC}bytesout_total", ["topic"], ([""], 3)),
        line(f"{TRAFFIC}failedsharefetchrequests_total", ["topic"], ([""], 2), (["a"], 2)),
    )
    assert found["kafka.network.io"] == [Point({"direction": "in"}, 5, 11), Point({"direction": "out"}, 5, 3)]
    assert found[f"{TRAFFIC}bytesin_total"] == [Point({"topic": "a"}, 5, 4), Point({"topic": "b"}, 5, 7)]
    assert found[f"{TRAFFIC}failedsharefetchrequests_total"] == [Point({"topic": "a"}, 5, 2)]


def test_groups_and_their_sums() -> None:
    found = translated(
        line("kafka_consumergroup_current_offset", ["consumergroup", "topic", "partition"], (["g", "t", "0"], 5)),
        line("kafka_consumergroup_current_offset_sum", ["consumergroup", "topic"], (["g", "t"], 11)),
        line("kafka_consumergroup_lag_sum", ["consumergroup", "topic"], (["g", "t"], 5)),
    )
    assert found["kafka.consumer_group.offset"] == [Point({"group": "g", "topic": "t", "partition": 0}, 5, 5)]
    assert found["kafka.consumer_group.offset_sum"] == [Point({"group": "g", "topic": "t"}, 5, 11)]
    assert found["kafka.consumer_group.lag_sum"] == [Point({"group": "g", "topic": "t"}, 5, 5)]


def test_a_label_that_opentelemetry_does_not_have_is_left_out() -> None:
    lag = line("kafka_server_replicafetchermanager_maxlag", ["clientId"], (["Replica"], 3))
    assert translated(lag) == {"kafka.lag.max": [Point({}, 5, 3)]}


def test_sums_are_what_one_node_alone_tells() -> None:
    """The collector's kafkametricsreceiver, which asks a cluster once, sends all of them as sums."""
    in_receiver = {"replicas", "replicas_in_sync", "members", "brokers", "partitions"}
    shapes = {named.name: named.shape for named in NAMES.values() if named.name.rpartition(".")[2] in in_receiver}
    partition = ("kafka.partition.replicas", "kafka.partition.replicas_in_sync")
    of_one = (*partition, "kafka.topic.partitions", "kafka.consumer_group.members")
    assert shapes == dict.fromkeys(of_one, Shape.UP_DOWN) | {"kafka.brokers": Shape.GAUGE}


def test_what_has_no_name_keeps_the_pages() -> None:
    name = "kafka_server_fetchsessioncache_numincrementalfetchsessions"
    found = translated(line(name, [], ([], True)), line("x", ["a", "b"], (["", "B"], 1.5), (["A", "B"], 1e300)))
    assert found == {name: [Point({}, 5, 1)], "x": [Point({"b": "B"}, 5, 1.5), Point({"a": "A", "b": "B"}, 5, 1e300)]}


def test_quantiles_have_names_of_their_own() -> None:
    times = line(
        "kafka_network_requestmetrics_totaltimems",
        ["request", "quantile"],
        (["Produce", "0.50"], 1.0),
        (["Produce", "0.99"], 2.5),
    )
    flushes = line("kafka_log_logflushstats_logflushrateandtimems", ["quantile"], (["0.50"], 3), (["0.99"], 4))
    found = translated(times, flushes)
    assert found["kafka.request.time.50p"] == [Point({"type": "Produce"}, 5, 1)]
    assert found["kafka.request.time.99p"] == [Point({"type": "Produce"}, 5, 2.5)]
    assert found["kafka.logs.flush.time.99p"] == [Point({}, 5, 4)]


def test_a_histogram_stays_one() -> None:
    flushes = Line(
        "kafka_log_logflushstats_logflushrateandtimems", Shape.HISTOGRAM, "", [], 5, [], [([], 9.5, [1, 2])], [4.0]
    )
    found = translated(flushes)
    assert found["kafka_log_logflushstats_logflushrateandtimems"] == [Point({}, 5, Buckets(9.5, [1, 2], [4.0]))]
    assert found["kafka.logs.flush.count"] == [Point({}, 5, 3)]


def test_text_that_is_no_text_can_be_sent_all_the_same() -> None:
    found = translated(line("x", ["logDirectory"], (["/data/\udcff"], 1), (["/data/ä"], 2)))
    assert [point.attributes["logDirectory"] for point in found["x"]] == ["/data/?", "/data/ä"]


def test_labels_of_clients_are_their_own() -> None:
    of_client = Line("org.apache.x", Shape.COUNTER, "", None, 5, [(["client_id", "c", "topic", "t"], 2)])
    assert translated(of_client) == {"org.apache.x": [Point({"client_id": "c", "topic": "t"}, 5, 2)]}


@given(st.lists(st.one_of(st.integers(0, 2**45), st.sampled_from([7, 8, 2**20 - 1, 2**20])), max_size=60), st.data())
def test_buckets_have_all_that_was_ever_observed(durations: list[int], data: st.DataObject) -> None:
    """Pages that take of it meanwhile change nothing."""
    lowest, highest = 3, 20
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Histogram, "keeps", True)
        histogram = Histogram()
        for duration in durations:
            histogram.observe(duration)
            if data.draw(st.booleans()):
                histogram.quantiles([0.5])
            elif data.draw(st.booleans()):
                histogram.take()
    bounds = [bound(power) for power in range(lowest, highest + 1)]
    expected = [0] * (len(bounds) + 1)
    for duration in durations:
        expected[bisect.bisect_left(bounds, duration)] += 1
    assert histogram.buckets(lowest, highest) == expected


def test_nothing_is_kept_where_nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Histogram, "keeps", False)
    histogram = Histogram()
    histogram.observe(100)
    histogram.quantiles([0.5])
    assert sum(histogram.buckets(0, 43)) == 0


BASE = "otel.exporter.otlp.endpoint"


def test_the_settings() -> None:
    assert otlp_settings({}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a"}) is None, "off unless the node is told"
    assert otlp_settings({BASE: "http://c:4318"}, {}) == OtlpSettings("http://c:4318/v1/metrics", 60_000)
    assert otlp_settings({BASE: "https://c/x/"}, {"OTEL_METRIC_EXPORT_INTERVAL": "500"}) == OtlpSettings(
        "https://c/x/v1/metrics", 500
    )
    whole = {BASE: "http://[::1]:9/api/v1/otlp/v1/metrics", "otel.metric.export.interval": "100"}
    assert otlp_settings(whole, {"OTEL_METRIC_EXPORT_INTERVAL": "x"}) == OtlpSettings(whole[BASE], 100)
    assert endpoint_of({}) == "http://localhost:4318"
    assert endpoint_of({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a"}) == "http://a"


@pytest.mark.parametrize(
    "properties",
    [
        {BASE: "collector:4318"},
        {BASE: "grpc://c:4317"},
        {BASE: "http://"},
        {BASE: "http://c:99999"},
        {BASE: "http://c:0"},
        {BASE: "http://c/a b"},
        {BASE: "http://user:secret@c"},
        {BASE: "http://c/?x=1"},
        {"otel.metric.export.interval": "100"},
        {BASE: "http://c", "otel.metric.export.interval": "99"},
        {BASE: "http://c", "otel.metric.export.interval": "1.5"},
    ],
)
def test_settings_that_cannot_be(properties: dict[str, str]) -> None:
    with pytest.raises(FatalError) as raised:
        otlp_settings(properties, {})
    assert str(raised.value).startswith("otel.") and "secret" not in str(raised.value)
    assert len(str(raised.value).splitlines()) == 1


@pytest.mark.parametrize(
    "headers",
    [
        "Authorization: Bearer secret",
        "Bearer secret",
        "a=1,secret",
        'a="secret"',
        "a=secret;b=1",
        "a=secr%0Aet",
        "secret\u00e9=1",
        "a=secret\\",
    ],
)
def test_headers_that_cannot_be_are_refused_without_being_shown(headers: str) -> None:
    """OpenTelemetry's exporter logs them."""
    variable = "OTEL_EXPORTER_OTLP_HEADERS"
    with pytest.raises(FatalError, match=f"^{variable}: entry [12] is not of the form NAME=VALUE") as raised:
        otlp_settings({BASE: "http://c"}, {variable: headers})
    assert "secret" not in str(raised.value)
    metrics = {"OTEL_EXPORTER_OTLP_METRICS_HEADERS": " a = b c, ,d=%20e==,", variable: headers}
    assert otlp_settings({BASE: "http://c"}, metrics), "this one goes first, and the other is not read"
    assert otlp_settings({}, {variable: headers}) is None
