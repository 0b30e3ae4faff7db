"""The names of metrics in expressions of Prometheus."""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DASHBOARD = ROOT / "monitoring/grafana/dashboards/kbroker.json"
ALERTS = ROOT / "monitoring/prometheus/alerts.yml"

_WORDS = {"and", "or", "unless", "by", "without", "on", "ignoring", "group_left", "group_right", "offset", "bool"}
OF_PROMETHEUS = {"up"}
"""The metrics that Prometheus makes itself."""


def metric_names(expression: str) -> set[str]:
    """The names that are neither a function, a label nor a word of the language."""
    bare = re.sub(r'"[^"]*"', "", expression)
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]", "", bare)
    bare = re.sub(r"\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)", "", bare)
    return {
        found[1] for found in re.finditer(r"\b([A-Za-z_:][\w:]*)(?!\w)(?!\s*\()", bare) if found[1] not in _WORDS
    } - OF_PROMETHEUS


def of_dashboard() -> set[str]:
    """The metrics that the dashboard asks for, its variables included."""
    dashboard = json.loads(DASHBOARD.read_text("utf-8"))
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    names = set().union(*map(metric_names, queries))
    for variable in dashboard["templating"]["list"]:
        names |= set(re.findall(r"label_values\((\w+)", variable["query"]))
    return names


def of_alerts() -> set[str]:
    """The metrics that the alerts ask for."""
    return set().union(*map(metric_names, re.findall(r"^ +expr: (.+)$", ALERTS.read_text("utf-8"), re.MULTILINE)))
