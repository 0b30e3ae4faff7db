"""A client's properties, for facts: the secret ones are left out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kbroker.client.properties import CLIENT_CONFIGS, ClientProperties
from kbroker.config import read_properties_file
from kbroker.config.provided import Provided
from kbroker.config.secret_names import sounds_secret
from kbroker.tools.doctor.facts import ClientFacts


def is_secret(name: str) -> bool:
    """Whether no text shows the value of a client's property: by its definition, or if it has none by its name."""
    return CLIENT_CONFIGS[name].sensitive if name in CLIENT_CONFIGS else sounds_secret(name)


def client_facts(properties: ClientProperties | None, path: Path | None) -> ClientFacts:
    """The facts of properties that can be used; ``path`` is the file that they are from."""
    if properties is None:
        return ClientFacts("the default: PLAINTEXT")
    protocol = properties["security.protocol"].upper()
    algorithm = properties["ssl.endpoint.identification.algorithm"] or ""
    given = {} if path is None else read_properties_file(path)
    return ClientFacts(
        properties.source,
        protocol,
        properties["sasl.mechanism"] if protocol.startswith("SASL_") else "",
        bool(algorithm.strip()),
        shown(given),
    )


def shown(given: Mapping[str, str]) -> dict[str, str]:
    """The properties that are no secrets: neither by their names nor from a provider, nor with a variable in them."""
    return {
        name: value
        for name, value in given.items()
        if not is_secret(name) and type(value) is not Provided and "${" not in value
    }
