"""The page of metrics of a node, as tests read it."""

from __future__ import annotations

import http.client
import re
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from kbroker.testing import RunningBroker
from tests.patience import SHORT

LISTENER = {"prometheus.metrics.reporter.listener": "http://127.0.0.1:0"}

Values = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def port_of(broker: RunningBroker) -> int:
    port = broker.in_broker(lambda node: node.metrics_port)
    assert port is not None
    return port


def ports_of(cluster: Any) -> list[int]:
    told = [re.findall(r"metrics are on http://127\.0\.0\.1:(\d+)/metrics", node.log) for node in cluster.nodes]
    return [int(ports[-1]) for ports in told]


def ask(port: int, path: str, method: str = "GET") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SHORT)
    connection.request(method, path)
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return response.status, text


def scrape(port: int, dialect: str = "strimzi") -> Values:
    status, text = ask(port, f"/metrics?dialect={dialect}")
    assert status == 200
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(values: Values, name: str, **labels: str) -> float:
    return values[name, tuple(sorted(labels.items()))]


def found(values: Values, name: str, **labels: str) -> dict[tuple[tuple[str, str], ...], float]:
    """The values of a name that have these labels, among others."""
    return {
        have: value_ for (name_, have), value_ in values.items() if name_ == name and set(labels.items()) <= set(have)
    }


def total(pages: list[Values], name: str, **labels: str) -> float:
    """The sum over nodes."""
    return sum(sum(found(page, name, **labels).values()) for page in pages)
