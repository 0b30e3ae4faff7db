"""One request writes so many denials into the audit log, and no more."""

from __future__ import annotations

import logging
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from kbroker.handlers.common.authorization import MOST_AUDITED_DENIALS, allowed_names
from kbroker.handlers.common.context import RequestContext
from kbroker.runtime.env import RealEnv
from kbroker.security.authorizer.audit import AUDIT_LOG
from kbroker.security.authorizer.standard import StandardAuthorizer
from kbroker.security.authorizer.types import AclOperation, ResourceType
from kbroker.security.principal import KafkaPrincipal
from kbroker.wire.headers import RequestHeader


@pytest.mark.parametrize("more", [0, 150])
def test_a_request_for_many_names_has_a_bounded_number_of_lines(more: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, AUDIT_LOG)
    connection: Any = SimpleNamespace(principal=KafkaPrincipal("User", "bob"), peer="127.0.0.1:1")
    services: Any = SimpleNamespace(authorizer=StandardAuthorizer([]), authorizer_of=None, env=RealEnv())
    names = [f"t{number}" for number in range(MOST_AUDITED_DENIALS + more)]
    for _ in range(2):  # each request has its own
        caplog.clear()
        ctx = RequestContext(RequestHeader(19, 7, 1, "test"), connection, services)
        asked = partial(allowed_names, ctx, AclOperation.CREATE, ResourceType.TOPIC, names)
        assert trio.run(asked) == set()
        lines = [record.message for record in caplog.records]
        assert [f" on TOPIC:{name} for CreateTopics" in line for name, line in zip(names, lines, strict=False)] == [
            True
        ] * MOST_AUDITED_DENIALS + [False] * bool(more)
        assert len(lines) == MOST_AUDITED_DENIALS + bool(more)
        if more:
            assert (
                lines[-1]
                == "Denied: User:bob from 127.0.0.1, more in the same CreateTopics, of which no line is written"
            )
