"""``kbroker capacity``: the examples of its page, what grows with what, and one line for a load that makes no sense."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from kbroker.base.costs import COSTS, REQUEST, REQUEST_ALONE
from kbroker.tools.cli.capacity_plan import BUSY, FULL, Load, plan_capacity
from tests.cli_command import Run, command_for

PAGE = Path(__file__).parents[2] / "docs" / "capacity.md"
LOAD = Load(messages=200_000, size=1_000, partitions=600)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command where no cluster is."""
    return command_for("127.0.0.1:1", monkeypatch, capsys)


def test_the_page_shows_what_the_command_says(alone: Run) -> None:
    blocks = re.findall(r"```sh\nkbroker (.*)\n```\n\n```text\n((?:.+\n)*)```", PAGE.read_text("utf-8"))
    assert len(blocks) == 2
    for words, shown in blocks:
        assert alone(*shlex.split(words)).out == shown


def test_a_load_that_makes_no_sense_is_one_line(alone: Run) -> None:
    for words in (
        ("--messages", "5"),
        ("--messages", "5", "--size", "0"),
        ("--messages", "5", "--size", "5", "--retention", "long"),
        ("--messages", "5", "--size", "5", "--ratio", "1.5"),
    ):
        told = alone("capacity", *words, code=2)
        assert told.out == "" and told.err.splitlines()[-1].startswith("kbroker capacity: ")


def test_json_has_the_load_and_the_plan(alone: Run) -> None:
    told = alone("capacity", "--messages", "100", "--size", "10", "--json").json
    assert told["load"]["retention_s"] == 7 * 86_400 and told["plan"]["machines"] == 3
    assert [each["source"] != "" for each in alone("capacity", "--constants", "--json").json] == [True] * len(COSTS)


def test_what_bears_the_load() -> None:
    plan = plan_capacity(LOAD)
    assert plan.busy_cores / plan.nodes <= BUSY
    assert plan.network_out * plan.machines == pytest.approx(LOAD.written * (LOAD.readers + 2))
    assert plan.disk_bytes * plan.machines * FULL == pytest.approx(LOAD.written * LOAD.retention_s * 3)
    assert plan_capacity(replace(LOAD, tls=True)).busy_cores > 1.2 * plan.busy_cores
    assert plan_capacity(replace(LOAD, network=1e8)).bottleneck == "network"
    assert plan_capacity(replace(LOAD, disk=1e8)).bottleneck == "disk rate"
    assert plan_capacity(replace(LOAD, messages=1)).bottleneck == "replicas"
    assert plan_capacity(replace(LOAD, partitions=2)).notes


def test_requests_cost_less_the_busier_a_node_is() -> None:
    """The costs of as many as a node bears, of one, and of what makes it half busy."""
    small = Load(messages=1 / REQUEST.value, size=1, batch=1, readers=0, replicas=1)
    assert small.busy_cores(1) == pytest.approx(1, rel=0.01)
    assert replace(small, messages=1).busy_cores(1) == pytest.approx(REQUEST_ALONE.value, rel=0.01)
    assert small.busy_cores(small.nodes_for_cores()) / small.nodes_for_cores() == pytest.approx(BUSY)


def test_what_matters_most() -> None:
    assert plan_capacity(replace(LOAD, messages=1)).matters_most == "retention"
    requests = plan_capacity(replace(LOAD, batch=4_000))
    assert requests.matters_most == "batch" and 1.5 < requests.growth < 2
    assert plan_capacity(replace(LOAD, readers=40, batch=1e6)).matters_most == "readers"
    assert plan_capacity(replace(LOAD, messages=100, partitions=500_000)).matters_most == "partitions"
