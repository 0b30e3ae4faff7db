"""Answers of the transactional APIs to right and wrong requests, by version, compared with Apache Kafka 4.4.0.

An Apache Kafka is started beside the broker under test and asked the same; KBROKER_COMPAT_JUDGE=HOST:PORT names one
that runs already.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import pytest

from compat_tests.api_versions import served_apis
from compat_tests.brokers import ApacheBroker
from compat_tests.clients import unavailable
from compat_tests.groups.wire_cases import agree
from compat_tests.transactions import wire_cases
from compat_tests.transactions.conftest import OPTIONS
from compat_tests.transactions.wire_world import World


@pytest.fixture(scope="module")
def world(bootstrap: str) -> Iterator[World]:
    """The producers of the broker under test."""
    made = World(bootstrap)
    yield made
    made.close()


@pytest.fixture(scope="module")
def judge() -> Iterator[World]:
    """The same producers in an Apache Kafka of its own."""
    running = os.environ.get("KBROKER_COMPAT_JUDGE")
    missing = None if running else unavailable("java")
    if missing:
        pytest.skip(missing)
    with contextlib.ExitStack() as stack:
        if not running:
            node = ApacheBroker(*OPTIONS)
            stack.callback(node.stop)
            running = node.bootstrap
        made = World(running)
        stack.callback(made.close)
        yield made


@pytest.mark.parametrize("api", list(wire_cases.CASES))
def test_answers_are_apache_kafkas(api: str, world: World, judge: World) -> None:
    key = wire_cases.api_key(api)
    versions = served_apis(judge.bootstrap)[key]
    assert served_apis(world.bootstrap)[key] == versions
    ours = wire_cases.answers(world, api, versions)
    theirs = wire_cases.answers(judge, api, versions)
    wrong = [
        f"{name}, versions {span}:\n  {ours[name].get(span)}\n  Kafka: {theirs[name].get(span)}"
        for name in theirs
        for span in sorted({*ours[name], *theirs[name]})
        if not agree(ours[name].get(span), theirs[name].get(span))
    ]
    assert not wrong, f"{len(wrong)} of {len(theirs)} cases\n" + "\n".join(wrong)
