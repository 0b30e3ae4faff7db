"""The queries of a dashboard as Grafana sends them, with the values of its variables, which the data source knows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from compat_tests.works_with.prometheus.server import Prometheus, Series

_BUILT_IN = {"__interval": "15s", "__range": "30m"}
_LABEL_VALUES = re.compile(r"label_values\((?:(.+),)?\s*(\w+)\)")
_QUERY_RESULT = re.compile(r"query_result\((.*)\)")


class Query(NamedTuple):
    """A query of a panel; ``is_graph`` if it is asked over a range of time."""

    panel: str
    expression: str
    is_graph: bool


class Dashboard:
    """A dashboard on a data source, with the first value of each variable, or all values where it offers them."""

    def __init__(
        self, path: Path, source: Prometheus, chosen: Mapping[str, str] | None = None, rate_interval: str = "1m"
    ) -> None:
        """``chosen`` has values of variables. ``rate_interval`` is what Grafana chooses by a graph's width; a minute is
        the least, as four times the interval that it takes scrapes to have."""
        self.name = path.stem
        self._content = json.loads(path.read_text("utf-8"))
        self.values = {**_BUILT_IN, "__rate_interval": rate_interval}
        """The values of the variables, as they stand in queries."""
        self.empty: list[str] = []
        """The variables that the data source has no value for."""
        for variable in self._content["templating"]["list"]:
            if variable["type"] == "query":
                found = self._values_of(variable, source)
                if not found:
                    self.empty.append(variable["name"])
                self.values[variable["name"]] = (chosen or {}).get(variable["name"]) or _first_or_all(variable, found)

    def queries(self) -> Iterator[Query]:
        """The queries of all panels, in their order."""
        for panel in _panels(self._content):
            for target in panel.get("targets", ()):
                if target.get("expr"):
                    yield Query(panel["title"], self._filled(target["expr"]), panel["type"] in ("timeseries", "graph"))

    def _filled(self, text: str) -> str:
        """The text with values for variables, written as ``$name`` or ``${name}``."""

        def value(found: re.Match[str]) -> str:
            return self.values.get(found[1] or found[2], found[0])

        return re.sub(r"\$(?:\{(\w+)(?::\w+)?\}|(\w+))", value, text)

    def _values_of(self, variable: Mapping[str, Any], source: Prometheus) -> list[str]:
        """The values that the data source knows for a variable."""
        query = variable["query"]
        text = self._filled(query["query"] if isinstance(query, dict) else query)
        if named := _LABEL_VALUES.fullmatch(text):
            found = source.label_values(named[2], named[1] or "")
        else:
            asked = _QUERY_RESULT.fullmatch(text)
            assert asked is not None, f"{text}: a kind of query that is not known here"
            found = [_written(series) for series in source.query(asked[1])]
        pattern = self._filled(variable.get("regex") or "").strip("/")
        if pattern:
            matches = [match for text in found if (match := re.search(pattern, text))]
            found = [match[1] for match in matches]
        return list(dict.fromkeys(found))


def _first_or_all(variable: Mapping[str, Any], found: list[str]) -> str:
    if not variable.get("includeAll"):
        return found[0] if found else ""
    return variable.get("allValue") or f"({'|'.join(map(re.escape, found))})".replace("\\", "\\\\")


def _written(series: Series) -> str:
    """A series as Grafana writes it for the expression of a variable."""
    labels = {name: value for name, value in series.labels.items() if name != "__name__"}
    pairs = ",".join(f'{name}="{value}"' for name, value in labels.items())
    return f"{series.labels.get('__name__', '')}{{{pairs}}} {series.value}"


def _panels(content: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """All panels, those in rows and folded rows too."""
    for panel in (*content.get("panels", ()), *content.get("rows", ())):
        yield panel
        yield from _panels(panel)
