"""ApiVersions 5: a client names the cluster and the node that it means to talk to (KIP-1242)."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbroker.errors import ErrorCode
from kbroker.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.node.node_harness import CLUSTER_ID, Node
from tests.node.quorum_harness import LISTENER, three_nodes

E = ErrorCode


async def ask(
    node: Node, cluster_id: str | None, node_id: int, *, version: int = 5, software: str = "a", listener: str = ""
) -> ApiVersionsResponse:
    client = await node.connect(*([listener] if listener else []))
    answer: ApiVersionsResponse = await client.ask(
        ApiVersionsRequest(
            client_software_name=software, client_software_version="1", cluster_id=cluster_id, node_id=node_id
        ),
        version,
    )
    return answer


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "code"),
    [
        (None, -1, E.NONE),
        (None, 7, E.NONE),  # who names no cluster names nothing
        (CLUSTER_ID, 1, E.NONE),
        (CLUSTER_ID, 2, E.REBOOTSTRAP_REQUIRED),
        (CLUSTER_ID, -1, E.REBOOTSTRAP_REQUIRED),
        ("another", 1, E.REBOOTSTRAP_REQUIRED),
        ("", 1, E.REBOOTSTRAP_REQUIRED),
    ],
)
async def test_a_broker_that_is_another_one_says_so(
    node: Node, cluster_id: str | None, node_id: int, code: ErrorCode
) -> None:
    answer = await ask(node, cluster_id, node_id)
    assert answer.error_code == code
    assert bool(answer.api_keys) is (code is E.NONE)
    # A name that is none is the first reason, and versions before 5 have no such fields.
    assert (await ask(node, cluster_id, node_id, software="-")).error_code == E.INVALID_REQUEST
    assert (await ask(node, cluster_id, node_id, version=4)).error_code == E.NONE


async def test_each_node_answers_for_itself_and_a_controller_does_not_look(tmp_path: Path) -> None:
    async with three_nodes(tmp_path) as quorum:
        for node_id in (1, 2, 3):
            for meant in (1, 2, 3):
                answer = await ask(quorum.node(node_id), CLUSTER_ID, meant)
                assert answer.error_code == (E.NONE if meant == node_id else E.REBOOTSTRAP_REQUIRED)
            assert (await ask(quorum.node(node_id), "another", 9, listener=LISTENER)).error_code == E.NONE
