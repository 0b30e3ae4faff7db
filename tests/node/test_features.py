"""Data directories of other releases: those with fewer features open and can be raised, those of Apache Kafka 4.3 open,
and features that nobody here knows are refused in a line."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbroker.errors import FatalError
from kbroker.raft_metadata.raft.snapshot import BOOTSTRAP_FILE, encode_snapshot
from kbroker.wire.messages.api_versions import ApiVersionsRequest
from kbroker.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from kbroker.wire.records.metadata import FeatureLevelRecord
from tests.node.node_harness import Client, running_node

ELR = "eligible.leader.replicas.version"


def formatted(path: Path, **levels: int) -> None:
    """A directory as another release formatted it; ``group_version=1`` stands for ``group.version``."""
    data = path / "data"
    data.mkdir()
    (data / "meta.properties").write_text(
        "node.id=1\ndirectory.id=AQIDBAUGBwgJCgsMDQ4PEA\nversion=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAw\n"
    )
    records = [FeatureLevelRecord(name=name.replace("_", "."), feature_level=level) for name, level in levels.items()]
    (data / BOOTSTRAP_FILE).write_bytes(encode_snapshot(records, now_ms=1, last_contained_log_timestamp=0))


async def finalized(client: Client) -> dict[str, int]:
    answer = await client.ask(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 4)
    return {feature.name: feature.max_version_level for feature in answer.finalized_features}


VOTERS = {"controller.quorum.voters": "1@127.0.0.1:9093"}


async def test_a_directory_with_fewer_features_opens_and_can_be_raised(tmp_path: Path) -> None:
    formatted(tmp_path, metadata_version=30)
    async with running_node(tmp_path, **VOTERS) as node:
        client = await node.connect()
        assert await finalized(client) == {"metadata.version": 30}
        request = UpdateFeaturesRequest(
            feature_updates=[FeatureUpdateKey(feature=name, max_version_level=1) for name in ("group.version", ELR)]
        )
        assert (await client.ask(request, 2)).error_code == 0
        raised = {"metadata.version": 30, "group.version": 1, ELR: 1}
        assert await finalized(client) == raised
    async with running_node(tmp_path, **VOTERS) as node:
        assert await finalized(await node.connect()) == raised


async def test_a_directory_of_apache_kafka_opens_with_all_its_features(tmp_path: Path) -> None:
    levels = {"metadata.version": 30, "group.version": 1, ELR: 1, "share.version": 1, "transaction.version": 2}
    formatted(tmp_path, **{name.replace(".", "_"): level for name, level in levels.items()})
    async with running_node(tmp_path, **VOTERS) as node:
        assert await finalized(await node.connect()) == levels


async def test_a_directory_with_a_feature_that_nobody_knows_is_refused_in_a_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    formatted(tmp_path, metadata_version=30, future_version=1)
    with pytest.raises(ExceptionGroup) as caught:
        async with running_node(tmp_path, **VOTERS):
            pass
    errors: BaseException = caught.value
    while isinstance(errors, BaseExceptionGroup):
        (errors,) = errors.exceptions
    assert isinstance(errors, FatalError)
    assert "refuses the registration of this broker: UNSUPPORTED_VERSION" in str(errors)
    assert "does not support finalized version 1 of future.version" in caplog.text
