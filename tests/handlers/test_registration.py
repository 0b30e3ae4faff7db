"""The table of what is served: rows that are known before any handler is imported."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
from types import ModuleType

import pytest

import kbroker.handlers
from kbroker.handlers.registration import BOTH, BROKER, CONTROLLER, Versions, handler, registrations
from kbroker.wire.messages.heartbeat import HeartbeatRequest
from kbroker.wire.messages.sasl_handshake import SaslHandshakeRequest


def handler_modules() -> list[ModuleType]:
    """All modules of the package that declare versions, with a row or without."""
    names = [found.name for found in pkgutil.iter_modules(kbroker.handlers.__path__)]
    modules = [importlib.import_module(f"kbroker.handlers.{name}") for name in names]
    return [module for module in modules if hasattr(module, "VERSIONS")]


def test_every_handler_has_its_row() -> None:
    """Importing one whose row says something else fails."""
    served = {entry.handle.__module__: entry.versions for entry in registrations(BOTH).values()}
    assert served == {module.__name__: module.VERSIONS for module in handler_modules()}
    assert {key for kind in (BROKER, CONTROLLER) for key in registrations(kind)} == set(registrations(BOTH))


def test_a_row_that_differs_or_is_missing_is_refused() -> None:
    async def handle(request: HeartbeatRequest, ctx: object) -> None: ...

    handle.__module__ = "kbroker.handlers.heartbeat"
    with pytest.raises(ValueError, match=r"row of Heartbeat .* is to say .*Versions\(min=0, max=9"):
        handler(HeartbeatRequest, versions=Versions(0, 9))(handle)
    with pytest.raises(ValueError, match="has no row"):
        handler(SaslHandshakeRequest, versions=Versions(0, 1))(handle)


def test_a_handler_is_imported_when_it_is_first_needed() -> None:
    program = """
import sys
from kbroker.handlers.registration import BROKER, registrations
entry = registrations(BROKER)[12]
assert entry.versions.max == 4 and not entry.is_async
assert "kbroker.handlers.heartbeat" not in sys.modules
handle = entry.handle
from kbroker.handlers import heartbeat
assert handle is heartbeat.handle and entry.learn is heartbeat.learn
assert entry.request_class is heartbeat.HeartbeatRequest
assert "kbroker.handlers.join_group" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
