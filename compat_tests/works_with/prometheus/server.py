"""A Prometheus: its process, and what its HTTP API answers."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from compat_tests.works_with.running import Running
from kbroker.tools.cli.cluster_plan import free_ports

SECONDS = 180
"""For what takes some scrapes, on a machine that does much else."""


class QueryError(Exception):
    """Prometheus refuses a query, or warns of it; the message is Prometheus's."""


class Series(NamedTuple):
    """A series of an answer: its labels, and its values with their times in seconds, the oldest first."""

    labels: dict[str, str]
    points: list[tuple[float, float]]

    @property
    def value(self) -> float:
        """The newest value."""
        return self.points[-1][1]


class Alert(NamedTuple):
    """An alert that is pending or firing."""

    name: str
    state: str
    labels: dict[str, str]
    summary: str


class Prometheus:
    """The server with a configuration and further flags, on a port of its own and with its data in ``directory``."""

    def __init__(self, binary: Path, config: Path, directory: Path, *flags: str, port: int | None = None) -> None:
        self._port = free_ports(1)[0] if port is None else port
        self.infos: dict[str, str] = {}
        """The remarks that Prometheus has made of queries, each with the query."""
        self.running = Running(
            [
                binary,
                f"--config.file={config}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address=127.0.0.1:{self._port}",
                *flags,
            ],
            directory,
            "prometheus",
        )

    def query(self, expression: str, time: float | None = None) -> list[Series]:
        """The answer of an instant query, for now or another time in seconds. `QueryError` if there is none."""
        at = {} if time is None else {"time": time}
        answer = self._ask("query", expression, query=expression, **at)
        if answer["resultType"] == "scalar":
            return [Series({}, [_point(answer["result"])])]
        return [
            Series(each["metric"], [_point(point) for point in each.get("values", [each.get("value")])])
            for each in answer["result"]
        ]

    def query_range(self, expression: str, start: float, end: float, step: int) -> list[Series]:
        """The answer of a query over a range, as a graph asks it; times in seconds."""
        answer = self._ask("query_range", expression, query=expression, start=start, end=end, step=step)
        return [Series(each["metric"], [_point(point) for point in each["values"]]) for each in answer["result"]]

    def total(self, expression: str) -> float:
        """The sum of the values of a query's answer; 0 if there are none."""
        return sum(each.value for each in self.query(expression))

    def label_values(self, label: str, selector: str = "") -> list[str]:
        """The values that a label has, of all series or of those that are selected."""
        match = {"match[]": selector} if selector else {}
        return list(self._ask(f"label/{label}/values", selector, **match))

    def alerts(self) -> list[Alert]:
        """The alerts that are pending or firing."""
        return [
            Alert(each["labels"]["alertname"], each["state"], each["labels"], each["annotations"]["summary"])
            for each in self._ask("alerts")["alerts"]
        ]

    def rules(self) -> list[tuple[str, str, str]]:
        """Name, health and last error of each rule."""
        groups = self._ask("rules")["groups"]
        return [
            (rule["name"], rule["health"], rule.get("lastError", "")) for group in groups for rule in group["rules"]
        ]

    def targets(self) -> list[tuple[str, str, str]]:
        """Job, health and last error of each target."""
        found = self._ask("targets")["activeTargets"]
        return [(each["labels"]["job"], each["health"], each["lastError"]) for each in found]

    def until(self, is_so: Callable[[], bool], what: str) -> None:
        """Return once something holds of what Prometheus knows."""
        self.running.until(is_so, what, SECONDS)

    def await_ready(self) -> None:
        """Return once it answers."""

        def is_ready() -> bool:
            try:
                return urllib.request.urlopen(f"http://127.0.0.1:{self._port}/-/ready", timeout=30).status == 200
            except OSError:
                return False

        self.until(is_ready, "to be ready")

    def _ask(self, path: str, expression: str = "", **parameters: object) -> Any:
        """The data of an answer, as JSON has it."""
        url = f"http://127.0.0.1:{self._port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=SECONDS) as response:
                answer = json.load(response)
        except urllib.error.HTTPError as error:
            raise QueryError(f"{expression}: {error.read().decode()}") from None
        if answer.get("warnings"):
            raise QueryError(f"{expression}: {answer['warnings']}")
        self.infos.update((info, expression) for info in answer.get("infos", ()))
        return answer["data"]


def _point(point: Iterable[float | str]) -> tuple[float, float]:
    time, value = point
    return float(time), float(value)
