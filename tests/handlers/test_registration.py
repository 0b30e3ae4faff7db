"""The table of what is served: rows that are known before any handler is imported."""

from __future__ import annotations

import importlib
import pkgutil
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any, cast

import pytest

import kbroker.handlers
from kbroker.handlers.registration import BOTH, BROKER, CONTROLLER, handler, registrations
from kbroker.wire.messages.classic_groups import HeartbeatRequest
from kbroker.wire.messages.sasl import SaslHandshakeRequest
from kbroker.wire.registry import API_KEYS


def handler_modules() -> set[str]:
    """All modules of the package that serve an API, with a row or without."""
    names = [found.name for found in pkgutil.iter_modules(kbroker.handlers.__path__)]
    modules = [importlib.import_module(f"kbroker.handlers.{name}") for name in names]
    return {module.__name__ for module in modules if any(re.match("handle(_|$)", name) for name in vars(module))}


def _text(handle: Callable[..., object]) -> str:
    return sys.modules[handle.__module__].__doc__ or ""


def test_every_handler_has_its_row_and_serves_what_its_docstring_says() -> None:
    rows = registrations(BOTH, unstable=True).values()
    assert {entry.handle.__module__ for entry in rows} == handler_modules()
    for entry in rows:
        text = _text(entry.handle)
        # A module that serves several APIs has a paragraph for each.
        text = re.split(rf"^{API_KEYS[entry.api_key].name}\b", text, maxsplit=1, flags=re.MULTILINE)[-1]
        said = re.search(r"Served: (\d+)(?:[^.;]*? (?:to|and) (\d+))?", text)
        assert said is not None, entry
        stable = registrations(BOTH).get(entry.api_key, entry)
        assert (int(said[1]), int(said[2] or said[1])) == stable.versions, entry
    assert {key for kind in (BROKER, CONTROLLER) for key in registrations(kind)} == set(registrations(BOTH))


def test_a_row_that_differs_or_is_missing_is_refused() -> None:
    async def handle(request: HeartbeatRequest, ctx: object) -> None: ...

    handle.__module__ = "kbroker.handlers.classic_groups"
    with pytest.raises(ValueError, match=r"row of Heartbeat .* is to say is_async"):
        handler(HeartbeatRequest)(handle)
    with pytest.raises(ValueError, match="has no row"):
        handler(SaslHandshakeRequest)(cast(Any, handle))


def test_a_handler_is_imported_when_it_is_first_needed() -> None:
    program = """
import sys
from kbroker.handlers.registration import BROKER, registrations
entry = registrations(BROKER)[12]
assert entry.versions.highest == 4 and not entry.is_async
assert "kbroker.handlers.classic_groups" not in sys.modules
handle = entry.handle
from kbroker.handlers import classic_groups
assert handle is classic_groups.handle_heartbeat
assert entry.request_class is classic_groups.HeartbeatRequest
assert "kbroker.handlers.groups" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
