"""Rules in Python as clients meet them: waiting, sending, coming in; and rules that fail."""

from __future__ import annotations

from typing import Any

import pytest

from kbroker.client import Client
from kbroker.client.errors import AuthenticationFailed
from kbroker.client.properties import ClientProperties
from kbroker.client.security import security_of
from kbroker.rules import Action
from kbroker.testing import RunningBroker
from tests.patience import LONG, SHORT


class Delivered:
    """Sends one record after the other by confluent-kafka, and gives each one's error."""

    def __init__(self, broker: RunningBroker, **more: Any) -> None:
        ck = pytest.importorskip("confluent_kafka")
        given = broker.librdkafka_properties() if broker._security else {"bootstrap.servers": broker.bootstrap_servers}
        self._producer = ck.Producer({**given, "linger.ms": 0, **more})

    def __call__(self, topic: str) -> str | None:
        """The name of the error of a record, None for none."""
        errors: list[Any] = []
        try:
            self._producer.produce(topic, b"v" * 100, on_delivery=lambda error, _: errors.append(error))
        except Exception as error:  # librdkafka knows already
            errors.append(error.args[0])
        assert self._producer.flush(LONG) == 0
        self.poll()
        return errors[0].name() if errors[0] is not None else None

    def poll(self) -> None:
        """Hear of what has happened."""
        self._producer.poll(0)


def logged_in(broker: RunningBroker, user: str, password: str) -> bool:
    """Whether a user comes in with a password."""
    return gets_in(broker, "PLAIN", user, password, "Invalid username or password")


def gets_in(broker: RunningBroker, mechanism: str, user: str, password: str, refusal: str) -> bool:
    """Whether a user comes in by a mechanism of SASL; one who does not is told so."""
    given = broker.client_properties("alice", mechanism=mechanism)
    line = given["sasl.jaas.config"].replace('"alice"', f'"{user}"').replace("alice-secret", password)
    properties = ClientProperties({**given, "sasl.jaas.config": line})
    with Client(properties["bootstrap.servers"], security=security_of(properties), timeout=SHORT) as client:
        try:
            client.refresh(())
        except AuthenticationFailed as error:
            assert refusal in str(error)
            return False
    return True


class Seen:
    """Allows everything, and keeps the principals of Produce."""

    def __init__(self) -> None:
        self.producers: set[str] = set()

    def authorize(self, action: Action) -> bool:
        if action.api == "Produce":
            self.producers.add(str(action.principal))
        return True


def fails(_: object) -> Any:
    raise RuntimeError("broken")


def exits(_: object) -> Any:
    raise SystemExit


def nonsense(_: object) -> Any:
    return "yes"
