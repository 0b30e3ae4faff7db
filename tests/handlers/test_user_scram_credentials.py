"""DescribeUserScramCredentials and AlterUserScramCredentials, as a client sees them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import trio

from kbroker.errors import ErrorCode as E
from kbroker.wire.messages import scram_credentials
from tests.handlers.metadata_plane import Plane, metadata_plane


def converse(path: Path, talk: Callable[[Plane], Awaitable[None]]) -> None:
    async def main() -> None:
        async with metadata_plane(path) as plane:
            await talk(plane)

    trio.run(main)


def of(*users: tuple[str, int]) -> scram_credentials.AlterUserScramCredentialsRequest:
    return scram_credentials.AlterUserScramCredentialsRequest(
        upsertions=[
            scram_credentials.ScramCredentialUpsertion(
                name=name, mechanism=mechanism, iterations=4096, salt=b"salt", salted_password=b"salted"
            )
            for name, mechanism in users
        ]
    )


async def described(plane: Plane, *users: str) -> list[Any]:
    request = scram_credentials.DescribeUserScramCredentialsRequest(
        users=[scram_credentials.UserName(name=name) for name in users]
    )
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
        everything = await plane.ask(scram_credentials.DescribeUserScramCredentialsRequest(users=None))
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
