"""DescribeUserScramCredentials and AlterUserScramCredentials, as a client sees them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kbroker.errors import ErrorCode as E
from kbroker.wire.messages import scram_credentials as alter
from kbroker.wire.messages import scram_credentials as describe
from tests.handlers.metadata_plane import Plane, metadata_plane


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


async def test_what_is_set_is_described(tmp_path: Path) -> None:
    async with metadata_plane(tmp_path) as plane:
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
