"""The argument of ``kbroker format --add-scram``, in the form of Kafka's ``kafka-storage`` (KIP-900).

``SCRAM-SHA-256=[name=alice,password=secret]``, with ``iterations`` and ``salt`` if they are chosen, and
``saltedpassword`` in place of ``password``; salts and salted passwords in base64 (``ScramParser``).
"""

from __future__ import annotations

import base64
import binascii
from typing import NamedTuple

from kbroker.security.sasl.scram import MAX_ITERATIONS, MIN_ITERATIONS, ScramCredential, ScramMechanism


class ScramUser(NamedTuple):
    """A user with the credential for a mechanism."""

    name: str
    mechanism: ScramMechanism
    credential: ScramCredential


def parse_add_scram(text: str) -> ScramUser:
    """The user that one argument adds; ``ValueError``, which tells no secret, if it has not that form."""
    mechanism_name, equals, value = text.strip().partition("=")
    if not equals:
        raise ValueError("expected MECHANISM=[name=NAME,password=PASSWORD]")
    mechanism = ScramMechanism.of_name(mechanism_name)
    if mechanism is None:
        known = ", ".join(entry.mechanism_name for entry in ScramMechanism)
        raise ValueError(f"the mechanism {mechanism_name} is not one of {known}")
    if not (value.startswith("[") and value.endswith("]")):
        raise ValueError(f"{mechanism_name} must be followed by = and its configuration in [ and ]")
    given = _components(value[1:-1])
    name = given.pop("name", "")
    if not name:
        raise ValueError("name is missing")
    iterations = _iterations(given.pop("iterations", None))
    salt = _base64("salt", given.pop("salt", None))
    password = given.pop("password", None)
    salted = _base64("saltedpassword", given.pop("saltedpassword", None))
    if given:
        raise ValueError("only name, password, saltedpassword, salt and iterations may be given")
    if password is not None:
        return ScramUser(
            name, mechanism, ScramCredential.from_password(mechanism, password, salt=salt, iterations=iterations)
        )
    if salted is None:
        raise ValueError("one of password and saltedpassword must be given")
    if salt is None:
        raise ValueError("saltedpassword needs the salt")
    return ScramUser(name, mechanism, ScramCredential.from_salted(mechanism, salted, salt, iterations))


def _components(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for component in text.split(","):
        name, equals, value = component.partition("=")
        if not equals:
            raise ValueError("the configuration is a list of NAME=VALUE with commas between them, and none in a value")
        if len(value) >= 2 and value[0] == value[-1] == '"':
            value = value[1:-1]
        found[name.strip()] = value
    return found


def _iterations(text: str | None) -> int:
    if text is None:
        return MIN_ITERATIONS
    if not (text.isascii() and text.isdigit() and MIN_ITERATIONS <= int(text[:9]) <= MAX_ITERATIONS):
        raise ValueError(f"iterations must be a number from {MIN_ITERATIONS} to {MAX_ITERATIONS}")
    return int(text)


def _base64(name: str, text: str | None) -> bytes | None:
    if text is None:
        return None
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"{name} is not base64") from None
