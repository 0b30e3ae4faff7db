"""Answers of the group APIs to wrong requests, version by version, compared with Apache Kafka 4.4.0.

An Apache Kafka is started beside the broker under test and asked the same (KBROKER_COMPAT_JUDGE=HOST:PORT names one
that runs already, with the options of conftest.py); where none can be had, its recorded answers stand in.
``pytest compat_tests/groups --broker apache`` compares Apache Kafka with what was recorded, and with ``--record``
writes it anew.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compat_tests.api_versions import served_apis
from compat_tests.brokers import ApacheBroker
from compat_tests.clients import unavailable
from compat_tests.groups import wire_cases
from compat_tests.groups.conftest import OPTIONS
from compat_tests.groups.wire_world import World

_RECORDED = Path(__file__).parent / "wire_answers.json"

wire_cases.load()


@pytest.fixture(scope="module")
def world(bootstrap: str) -> Iterator[World]:
    """The groups of the broker under test."""
    made = World(bootstrap)
    yield made
    made.close()


@pytest.fixture(scope="module")
def judge(request: pytest.FixtureRequest) -> Iterator[World | None]:
    """The same groups in an Apache Kafka of its own; None where its recorded answers are to do."""
    running = os.environ.get("KBROKER_COMPAT_JUDGE")
    if not running and (request.config.getoption("--broker") == "apache" or unavailable("java")):
        yield None
        return
    with contextlib.ExitStack() as stack:
        if not running:
            node = ApacheBroker(*OPTIONS)
            stack.callback(node.stop)
        made = World(running or node.bootstrap)
        stack.callback(made.close)
        yield made


def as_text(answers: dict[str, dict[str, Any]]) -> str:
    """JSON with a line for each case, for which a difference is easy to see."""
    apis = []
    for api in sorted(answers):
        lines = ",\n".join(f"  {json.dumps(case)}: {json.dumps(told)}" for case, told in answers[api].items())
        apis.append(f" {json.dumps(api)}: {{\n{lines}\n }}")
    return "{\n" + ",\n".join(apis) + "\n}\n"


@pytest.mark.parametrize("api", list(wire_cases.CASES))
def test_answers_are_apache_kafkas(
    api: str, request: pytest.FixtureRequest, bootstrap: str, world: World, judge: World | None
) -> None:
    versions = served_apis(bootstrap).get(wire_cases.api_key(api))
    if versions is None:
        pytest.skip("the broker does not serve it")
    ours = wire_cases.answers(world, api, versions)
    recorded: dict[str, dict[str, Any]] = json.loads(_RECORDED.read_text()) if _RECORDED.exists() else {}
    if judge is not None:
        theirs = wire_cases.answers(judge, api, served_apis(judge.bootstrap)[wire_cases.api_key(api)])
    else:
        if request.config.getoption("--record"):
            _RECORDED.write_text(as_text({**recorded, api: ours}))
            return
        theirs = recorded[api]
    assert list(ours) == list(theirs)
    wrong = [
        f"{name}, versions {versions}:\n  {ours[name].get(versions)}\n  Kafka: {theirs[name].get(versions)}"
        for name in theirs
        for versions in sorted({*ours[name], *theirs[name]})
        if not wire_cases.agree(ours[name].get(versions), theirs[name].get(versions))
    ]
    assert not wrong, f"{len(wrong)} of {len(theirs)} cases\n" + "\n".join(wrong)
