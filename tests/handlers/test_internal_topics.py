"""The replicas of internal topics where the brokers are nodes of one machine, and where more may be to come."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.internal_topics import ensure_internal_topic
from tests.node.node_harness import configuration


def broker(rack: str | None, host: str = "h") -> Any:
    return SimpleNamespace(rack=rack, endpoints={"PLAINTEXT": SimpleNamespace(host=host)})


@pytest.mark.parametrize(
    ("brokers", "controllers", "replicas"),
    [
        ({1: broker("m"), 2: broker("m")}, {1}, 1),  # of --cores
        ({2: broker("m")}, {1}, 3),  # a controller apart, and the first of its brokers
        ({2: broker("m"), 3: broker("m")}, {1}, 3),
        ({1: broker("m"), 2: broker("n")}, {1}, 3),
        ({1: broker("m"), 2: broker("m", "other")}, {1}, 3),
        ({1: broker(None), 2: broker(None)}, {1}, 3),
        ({1: broker("m"), 2: broker("m"), 3: broker("m")}, {1, 2, 3}, 3),
    ],
)
async def test_only_a_machine_that_is_all_there_is_has_one_replica(
    tmp_path: Path, brokers: dict[int, Any], controllers: set[int], replicas: int
) -> None:
    asked = []

    async def create_topics(topics: Any) -> Any:
        asked.extend(topics)
        raise ApiError(ErrorCode.NOT_CONTROLLER)

    image = SimpleNamespace(
        topics=SimpleNamespace(by_name={}), brokers=brokers, controllers=dict.fromkeys(controllers), alive_brokers=dict
    )
    metadata = SimpleNamespace(is_alone=False, image=image, create_topics=create_topics)
    services: Any = SimpleNamespace(metadata=metadata, config=configuration(tmp_path))
    with pytest.raises(ApiError):
        await ensure_internal_topic(services, "__transaction_state")
    assert [topic.replication_factor for topic in asked] == [replicas]
