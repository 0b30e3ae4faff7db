"""ApiVersions of a node compared with that of Apache Kafka 4.4.0: listener by listener, key by key, version by version.

``tests/facts/api_versions.json`` has what Apache Kafka answers; ``python -m compat_tests.api_versions`` wrote it, and
``compat_tests/wire_differential/test_api_versions.py`` asks both brokers.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from compat_tests.api_versions import VERSIONS, request, told, unfolded
from tests.node.quorum_harness import LISTENER, quorum

FACTS: dict[str, Any] = json.loads((Path(__file__).parent.parent / "facts" / "api_versions.json").read_text("utf-8"))


class Difference(NamedTuple):
    """Something that Apache Kafka's answer has, and kbroker's lacks or has otherwise."""

    listener: str
    part: str
    """apis, supported or finalized."""
    name: str
    why: str
    ours: str | None = None


DIFFERENCES: tuple[Difference, ...] = (
    Difference(
        "controller, unstable",
        "supported",
        "metadata.version",
        "34 is 4.5-IV0, which is unfinished; Apache Kafka's controllers list it by a property that is for APIs alone",
        "7-33",
    ),
)
"""All differences, each with its reason."""


def expected(listener: str, version: int) -> dict[str, Any]:
    """Apache Kafka's answer, without what kbroker is known to lack."""
    answer: dict[str, Any] = copy.deepcopy(unfolded(FACTS[listener], version))
    for difference in DIFFERENCES:
        part = answer.get(difference.part, {})
        if difference.listener == listener and difference.name in part:
            del part[difference.name]
            if difference.ours is not None:
                part[difference.name] = difference.ours
    return answer


def test_the_facts_are_those_of_the_release() -> None:
    assert FACTS["kafka"] == "4.4.0"
    for listener, keys in (("broker", 77), ("controller", 42)):
        assert len(FACTS[listener]["apis"]) == keys
    for each in DIFFERENCES:
        theirs = unfolded(FACTS[each.listener], 5)[each.part]
        assert theirs[each.name] != each.ours, f"{each.name} is no difference"


@pytest.mark.parametrize("unstable", [False, True], ids=["", "unstable"])
async def test_answers(tmp_path: Path, unstable: bool) -> None:
    properties = {"unstable_api_versions_enable": "true"} if unstable else {}
    async with quorum(tmp_path, 1, dynamic=True, properties=properties) as cluster:
        await cluster.start(1)
        await cluster.await_leader()
        for kind, listener in (("broker", "PLAINTEXT"), ("controller", LISTENER)):
            client = await cluster.node(1).connect(listener)
            for version in VERSIONS:
                answer = await client.ask(request(), version)
                name = f"{kind}, unstable" if unstable else kind
                assert told(answer, version) == expected(name, version), (listener, version)
