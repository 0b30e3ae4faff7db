"""Pages of metrics: of kbroker, and of Apache Kafka with one of the exporters, as far as they have the same names."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from http.client import HTTPException
from typing import Final, NamedTuple

from kbroker.tools.top.facts import RequestTimes, Scrape
from kbroker.types import TopicPartition

MAX_BYTES: Final = 8 << 20
"""A larger page is given up: a screen must not cost a node its time."""

STAGES: Final = ("requestqueue", "local", "remote", "responsequeue", "responsesend")
"""Stages of a request, in the order in which it goes through them."""

_TIMES: Final = re.compile(rf"kafka_network_requestmetrics_(total|{'|'.join(STAGES)})timems")
_TOPIC_BYTES: Final = re.compile(r"kafka_server_brokertopicmetrics_bytes(in|out)(?:persec)?(?:_total)?")
_REQUESTS: Final = ("kafka_network_requestmetrics_requests_total", "kafka_network_requestmetrics_requestspersec_total")

_LINE: Final = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? ([^ ]+)(?: -?\d+)?")
_LABEL: Final = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)",?')
_ESCAPED: Final = re.compile(r"\\(.)")


class CannotScrape(Exception):
    """A page of metrics cannot be had: one line."""


class Value(NamedTuple):
    """A line of a page."""

    name: str
    labels: Mapping[str, str]
    value: float


def values_of(text: str) -> Iterator[Value]:
    """The values of a page in the text format of Prometheus; lines that are none are passed over."""
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line.rstrip())
        if match is None:
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        labels = {name: _ESCAPED.sub(_unescaped, quoted) for name, quoted in _LABEL.findall(match[2] or "")}
        yield Value(match[1], labels, value)


def _unescaped(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else match[1]


class _Times:
    """Times of one API, by stage and quantile, and its count."""

    def __init__(self) -> None:
        self.count = 0.0
        self.middle: float | None = None
        self.slow: dict[str, float] = {}


def scrape_of(text: str, url: str, at: float) -> Scrape:
    """The values of a page that are shown; those that it lacks are absent."""
    bytes_of: dict[str, dict[str, float]] = {"in": {}, "out": {}}
    lags: dict[str, dict[TopicPartition, float]] = {}
    times: dict[str, _Times] = {}
    single: dict[str, float] = {}
    node: int | None = None
    for name, labels, value in values_of(text):
        if (match := _TOPIC_BYTES.fullmatch(name)) is not None:
            if "topic" in labels:
                bytes_of[match[1]][labels["topic"]] = value
        elif name == "kafka_consumergroup_lag_seconds":
            if labels.keys() >= {"consumergroup", "topic", "partition"} and labels["partition"].isdecimal():
                partition = TopicPartition(labels["topic"], int(labels["partition"]))
                lags.setdefault(labels["consumergroup"], {})[partition] = value
        elif name in _REQUESTS and "request" in labels:
            times.setdefault(labels["request"], _Times()).count += value
        elif (match := _TIMES.fullmatch(name)) is not None and "request" in labels:
            _take_time(times.setdefault(labels["request"], _Times()), match[1], labels.get("quantile", ""), value)
        elif name == "kafka_server_app_info_starttimems" and labels.get("id", "").isdecimal():
            node = int(labels["id"])
        elif name == "kafka_server_socket_server_metrics_connection_count":
            single[name] = single.get(name, 0.0) + value
        elif name in ("process_resident_memory_bytes", "process_cpu_seconds_total") or (
            name == "kbroker_event_loop_turn_ms" and labels.get("quantile") == "0.99"
        ):
            single[name] = value
    return Scrape(
        url,
        node,
        at,
        bytes_of["in"],
        bytes_of["out"],
        lags,
        tuple(
            RequestTimes(
                api,
                found.count,
                found.middle,
                found.slow.get("total"),
                {stage: found.slow[stage] for stage in STAGES if stage in found.slow},
            )
            for api, found in sorted(times.items())
        ),
        single.get("kafka_server_socket_server_metrics_connection_count"),
        single.get("process_resident_memory_bytes"),
        single.get("process_cpu_seconds_total"),
        single.get("kbroker_event_loop_turn_ms"),
    )


def _take_time(times: _Times, stage: str, quantile: str, milliseconds: float) -> None:
    if quantile == "0.99":
        times.slow[stage] = milliseconds
    elif stage == "total" and quantile in ("0.50", "0.5"):
        times.middle = milliseconds


def scrape(url: str, at: float, seconds: float) -> Scrape:
    """Ask for a page; :class:`CannotScrape` if it does not come within so many seconds, or is too large."""
    try:
        with _opener().open(url, timeout=seconds) as answer:
            data = answer.read(MAX_BYTES + 1)
    except urllib.error.HTTPError as error:
        raise CannotScrape(f"{url}: it answers with {error.code}") from None
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise CannotScrape(f"{url}: {getattr(reason, 'strerror', None) or reason}") from None
    if len(data) > MAX_BYTES:
        raise CannotScrape(f"{url}: the page is larger than {MAX_BYTES >> 20} MiB, which would cost the node too much")
    return scrape_of(data.decode("utf-8", "replace"), url, at)


def _opener() -> urllib.request.OpenerDirector:
    """Without proxies of the environment, and without redirections: a node's page is where it was said to be."""
    opener = urllib.request.OpenerDirector()
    for handler in (urllib.request.HTTPHandler, urllib.request.HTTPSHandler, urllib.request.HTTPErrorProcessor):
        opener.add_handler(handler())
    opener.add_handler(urllib.request.HTTPDefaultErrorHandler())
    return opener
