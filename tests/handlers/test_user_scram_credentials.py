"""DescribeUserScramCredentials and AlterUserScramCredentials, as a client sees them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from kbroker.errors import ErrorCode as E
from kbroker.security.authorizer.types import AclOperation, ResourceType
from kbroker.wire.messages import alter_user_scram_credentials as alter
from kbroker.wire.messages import describe_user_scram_credentials as describe
from tests.handlers.metadata_plane import Plane, metadata_plane


def converse(path: Path, talk: Callable[[Plane], Awaitable[None]]) -> None:
    async def main() -> None:
        async with metadata_plane(path) as plane:
            await talk(plane)

    trio.run(main)


def of(*users: tuple[str, int]) -> alter.AlterUserScramCredentialsRequest:
    return alter.AlterUserScramCredentialsRequest(
        upsertions=[
            alter.ScramCredentialUpsertion(
                name=name, mechanism=mechanism, iterations=4096, salt=b"salt", salted_password=b"salted"
            )
            for name, mechanism in users
        ]
    )


async def described(plane: Plane, *users: str) -> list[Any]:
    request = describe.DescribeUserScramCredentialsRequest(users=[describe.UserName(name=name) for name in users])
    response = await plane.ask(request)
    assert response.error_code == 0 and response.error_message == ""
    return [
        (result.user, result.error_code, result.error_message)
        if result.error_code
        else (result.user, [(info.mechanism, info.iterations) for info in result.credential_infos])
        for result in response.results
    ]


def test_what_is_set_is_described(tmp_path: Path) -> None:
    async def talk(plane: Plane) -> None:
        for users in ((("bob", 2), ("alice", 1)), (("alice", 2),)):
            response = await plane.ask(of(*users))
            assert [(result.user, result.error_code, result.error_message) for result in response.results] == [
                (user, 0, None) for user, _ in users
            ]
        everybody = [("alice", [(1, 4096), (2, 4096)]), ("bob", [(2, 4096)])]
        assert await described(plane) == everybody
        everything = await plane.ask(describe.DescribeUserScramCredentialsRequest(users=None))
        assert [result.user for result in everything.results] == ["alice", "bob"]
        assert await described(plane, "bob", "eve", "alice", "alice") == [
            everybody[1],
            ("eve", E.RESOURCE_NOT_FOUND, "Attempt to describe a user credential that does not exist: eve"),
            (
                "alice",
                E.DUPLICATE_RESOURCE,
                "Cannot describe SCRAM credentials for the same user twice in a single request: alice",
            ),
        ]

    converse(tmp_path, talk)


class NothingFor:
    """An authorizer that lets everybody do anything but one thing."""

    def __init__(self, operation: AclOperation) -> None:
        self._operation = operation

    def authorize(self, principal: Any, host: str, operation: AclOperation, kind: ResourceType, name: str) -> bool:
        return not (operation is self._operation and kind is ResourceType.CLUSTER)

    def audit(self, *_: Any) -> None:
        pass


@pytest.mark.parametrize("operation", [AclOperation.ALTER, AclOperation.DESCRIBE])
def test_who_may_not_changes_and_learns_nothing(tmp_path: Path, operation: AclOperation) -> None:
    async def talk(plane: Plane) -> None:
        await plane.ask(of(("alice", 1)))
        plane.services.authorizer = NothingFor(operation)
        response = await plane.ask(of(("bob", 1), ("bob", 2), ("carol", 1)))
        shown = await plane.ask(describe.DescribeUserScramCredentialsRequest(users=None))
        named = await plane.ask(describe.DescribeUserScramCredentialsRequest(users=[describe.UserName(name="alice")]))
        refused = E.CLUSTER_AUTHORIZATION_FAILED
        if operation is AclOperation.ALTER:
            assert {(result.user, result.error_code) for result in response.results} == {
                ("bob", refused),
                ("carol", refused),
            }
            assert set(plane.metadata.image.principals.scram) == {("alice", 1)}
            assert shown.error_code == 0
        else:
            assert (shown.error_code, shown.results) == (refused, [])
            assert [(result.user, result.error_code) for result in named.results] == [("", refused)]
            assert not named.results[0].credential_infos

    converse(tmp_path, talk)
