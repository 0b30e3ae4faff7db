"""The dashboard and the alerts of the repository ask for metrics that there are."""

from __future__ import annotations

import json
import re

import pytest

from kbroker.observe.metrics.catalogue import all_families
from kbroker.observe.metrics.dialect import Dialect, Kind
from tests.metrics.expressions import ALERTS, DASHBOARD, metric_names, of_alerts, of_dashboard

USUAL = {
    "UnderReplicatedPartitions",
    "OfflinePartitions",
    "AbnormalControllerState",
    "UnderMinIsrPartitions",
    "OfflineLogDirectory",
    "DiskSpaceLow",
    "ConsumerLagSeconds",
}


def test_what_counts_as_a_metric() -> None:
    assert metric_names('sum by (topic) (rate(a_total{topic=~"x", b="c"}[5m])) / max(d) or vector(0)') == {
        "a_total",
        "d",
    }
    assert metric_names("up == 0 and on (instance) e offset 5m") == {"e"}


@pytest.mark.parametrize("asked", [of_dashboard(), of_alerts()], ids=["dashboard", "alerts"])
def test_each_metric_is_in_the_table(asked: set[str]) -> None:
    names = {family.names[Dialect.STRIMZI] for family in all_families()}
    assert len(asked) > 10
    assert asked - names == set()


def test_counters_are_asked_for_their_rate_alone() -> None:
    counters = {family.names[Dialect.STRIMZI] for family in all_families() if family.kind is Kind.COUNTER}
    text = DASHBOARD.read_text("utf-8") + ALERTS.read_text("utf-8")
    asked = {name for name in counters if name in text}
    assert asked
    for name in asked:
        assert re.findall(rf"(\w+)\({name}\b", text) and not re.findall(rf"(?<!rate\()(?<!increase\(){name}\b", text)


def test_the_dashboard_fits_the_grid() -> None:
    dashboard = json.loads(DASHBOARD.read_text("utf-8"))
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24 and not cells & taken, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_the_usual_alerts_are_there_and_say_what_they_mean() -> None:
    rules = re.split(r"^ +- alert: ", ALERTS.read_text("utf-8"), flags=re.MULTILINE)[1:]
    names = [rule.split("\n", 1)[0] for rule in rules]
    assert set(names) >= USUAL and len(set(names)) == len(names)
    for rule in rules:
        assert all(f"{key}: " in rule for key in ("expr", "severity", "summary", "description")), rule
        assert "\t" not in rule
