"""The APIs that a broker serves, asked with the simplest request that there is (ApiVersions v0 on a plain socket).

``python -m compat_tests.api_versions > tests/facts/api_versions.json`` writes what Apache Kafka 4.4.0 answers, on each
listener and to each version of the request.
"""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

from kbroker.wire.conversation import Conversation
from kbroker.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kbroker.wire.registry import API_KEYS
from tests.patience import SHORT


def _receive_exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise ConnectionError("the broker closed the connection")
        data += piece
    return data


def _connect(bootstrap: str) -> socket.socket:
    """A connection to the first of the brokers that is up."""
    failure: OSError | None = None
    for address in bootstrap.split(","):
        host, port = address.rsplit(":", 1)
        try:
            return socket.create_connection((host, int(port)), timeout=SHORT)
        except OSError as error:
            failure = error
    raise failure or ValueError(f"no address in {bootstrap!r}")


def served_apis(bootstrap: str) -> dict[int, tuple[int, int]]:
    """API key -> (lowest, highest version) as the first broker of `bootstrap` that is up advertises them."""
    with _connect(bootstrap) as connection:
        body = struct.pack(">hhih", 18, 0, 1, -1)
        connection.sendall(struct.pack(">i", len(body)) + body)
        (size,) = struct.unpack(">i", _receive_exactly(connection, 4))
        reply = _receive_exactly(connection, size)
    _, _, count = struct.unpack_from(">ihi", reply)
    rows = (struct.unpack_from(">hhh", reply, 10 + 6 * index) for index in range(count))
    return {key: (low, high) for key, low, high in rows}


JOIN_GROUP = 11
"""JoinGroup: with it the broker serves classic groups."""


VERSIONS = range(6)
"""Of ApiVersions, all."""


def told(answer: ApiVersionsResponse, version: int) -> dict[str, Any]:
    """An answer as the facts have it: APIs by name with their versions, features with their levels."""
    shown: dict[str, Any] = {
        "apis": {
            f"{entry.api_key} {API_KEYS[entry.api_key].name}": f"{entry.min_version}-{entry.max_version}"
            for entry in sorted(answer.api_keys, key=lambda entry: entry.api_key)
        }
    }
    if version >= 3:
        supported = sorted(answer.supported_features, key=lambda feature: feature.name)
        finalized = sorted(answer.finalized_features, key=lambda feature: feature.name)
        shown["supported"] = {each.name: f"{each.min_version}-{each.max_version}" for each in supported}
        shown["finalized"] = {each.name: f"{each.min_version_level}-{each.max_version_level}" for each in finalized}
    return shown


def request() -> ApiVersionsRequest:
    """The question, of a client that has a name."""
    return ApiVersionsRequest(client_software_name="facts", client_software_version="1")


def told_by(bootstrap: str) -> dict[str, Any]:
    """The answers of the first broker of `bootstrap` that is up, by the version of the request."""
    answers = {}
    with _connect(bootstrap) as connection:
        talk = Conversation("facts")
        for version in VERSIONS:
            connection.sendall(b"".join(talk.send(request(), version)))
            (size,) = struct.unpack(">i", _receive_exactly(connection, 4))
            answers[str(version)] = told(talk.receive(_receive_exactly(connection, size)), version)
    return answers


def folded(answers: dict[str, Any]) -> dict[str, Any]:
    """The answers to all versions in short: the APIs, which are those of all, and the features by version."""
    apis = answers["0"]["apis"]
    assert all(answer["apis"] == apis for answer in answers.values())
    features = {version: {part: answers[version][part] for part in ("supported", "finalized")} for version in "345"}
    assert features["4"] == features["5"]
    return {"apis": apis, "features": {"3": features["3"], "4": features["4"]}}


def unfolded(facts: dict[str, Any], version: int) -> dict[str, Any]:
    """The answer to a version."""
    return {"apis": facts["apis"], **(facts["features"][str(min(version, 4))] if version >= 3 else {})}


def main() -> None:
    """Write the facts."""
    from compat_tests.apache_kafka import SERVER_VERSION, ApacheKafka

    facts: dict[str, Any] = {"kafka": SERVER_VERSION}
    with ApacheKafka() as node:
        facts["broker"] = folded(told_by(node.bootstrap))
        facts["controller"] = folded(told_by(f"127.0.0.1:{node.controller_port}"))
    with ApacheKafka(properties={"unstable.api.versions.enable": "true"}) as node:
        facts["broker, unstable"] = folded(told_by(node.bootstrap))
        facts["controller, unstable"] = folded(told_by(f"127.0.0.1:{node.controller_port}"))
    print(json.dumps(facts, indent=1))


if __name__ == "__main__":
    main()
