"""A directory at kraft.version 0, which one broker has formatted with fixed voters: the other opens it and raises the
level, and the first goes on with voters that can change."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compat_tests.apache_kafka import tool
from compat_tests.api_versions import told_by
from compat_tests.log_interchange.nodes import Apache, Kbroker, Node, Place
from compat_tests.wire_differential.dialogue import Dialogue
from kbroker.wire.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from kbroker.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.patience import eventually


@pytest.fixture(params=["kbroker-first", "apache-first"])
def nodes(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Place, Node, Node]]:
    place = Place(tmp_path)
    voters = {"controller.quorum.voters": f"1@127.0.0.1:{place.controller_port}"}
    kbroker = Kbroker(place, voters)
    apache = Apache(place, {**voters, "controller.quorum.bootstrap.servers": ""}, format_options=())
    first, second = (kbroker, apache) if request.param == "kbroker-first" else (apache, kbroker)
    yield place, first, second
    for node in (kbroker, apache):
        node.kill()


def level(place: Place) -> str | None:
    """The finalized level of kraft.version."""
    finalized: dict[str, str] = told_by(place.bootstrap)["5"]["finalized"]
    return finalized.get("kraft.version")


def ask(place: Place, request: Any, version: int) -> Any:
    """Send a request to the running broker on a connection of its own, and return the answer."""
    talk = Dialogue(place.bootstrap)
    answer = talk.ask(request, version)
    talk.close()
    return answer


def voter(place: Place) -> tuple[int, bytes]:
    """The only voter with its directory."""
    request = DescribeQuorumRequest(
        topics=[TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])]
    )
    [found] = ask(place, request, 2).topics[0].partitions[0].current_voters
    return found.replica_id, bytes(found.replica_directory_id)


def could_be_raised(place: Place) -> bool:
    """Whether the level would be raised if that were asked in earnest."""
    update = FeatureUpdateKey(feature="kraft.version", max_version_level=1)
    request = UpdateFeaturesRequest(feature_updates=[update], validate_only=True)
    return bool(ask(place, request, 1).error_code == 0)


def test_a_directory_of_fixed_voters(nodes: tuple[Place, Node, Node]) -> None:
    place, first, second = nodes
    first.start()
    assert level(place) is None
    first.stop()
    second.start()
    assert level(place) is None
    # A controller registers what it supports a moment after it has started.
    eventually(lambda: could_be_raised(place), "the level to be possible")
    assert level(place) is None
    upgrade = ("kafka-features", "--bootstrap-server", place.bootstrap, "upgrade", "--feature", "kraft.version=1")
    done = tool(*upgrade)
    assert done.returncode == 0, done
    # The broker's own image follows the controller's.
    eventually(lambda: level(place) == "1-1", "the level to be known")
    known = voter(place)
    assert known[0] == 1 and any(known[1])
    second.stop()
    first.start()
    assert level(place) == "1-1"
    assert voter(place) == known
    first.stop()
    assert first.complaints() == second.complaints() == []
