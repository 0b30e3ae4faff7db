"""The answers of each broker to the cases, by API, case and version."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from compat_tests.groups.wire_world import World
from kbroker.wire.registry import API_KEYS

Make = Callable[[int], Any]
"""The request of a version; None for a version where the case does not exist. A list is a conversation of several
requests; one in it may be a function of the answers so far, or of another API, which is asked in its latest version."""

CasesOf = Callable[[World], Iterator[tuple[str, Make]]]

CASES: dict[str, CasesOf] = {}
"""The cases by the name of their API."""

CLASSIC_ON_MODERN = "classic requests about consumer groups"
"""No API, but cases of several."""

_MODULES = ("wire_classic", "wire_offsets", "wire_consumer")


def cases_of(api: str) -> Callable[[CasesOf], CasesOf]:
    """Enter the cases of an API."""

    def enter(function: CasesOf) -> CasesOf:
        CASES[api] = function
        return function

    return enter


def load() -> None:
    """Import the modules that hold the cases."""
    for name in _MODULES:
        importlib.import_module(f"compat_tests.groups.{name}")


@dataclass(frozen=True)
class AtVersion:
    """A request with the version that it is to be sent in."""

    request: Any
    version: int


def api_key(api: str) -> int:
    """The key of the API of that name."""
    if api == CLASSIC_ON_MODERN:
        api = "ConsumerGroupHeartbeat"
    return next(key for key, each in API_KEYS.items() if each.name == api)


def _converse(world: World, key: int, version: int, made: Any) -> Any:
    if not isinstance(made, list):
        return world.normal(world.ask(made, version))
    told: list[Any] = []
    for step in made:
        request = step(told) if callable(step) else step
        if isinstance(request, AtVersion):
            told.append(world.ask(request.request, request.version))
        else:
            own = API_KEYS[type(request).api_key]
            told.append(world.ask(request, version if own.key == key else own.stable_versions[1]))
    return [world.normal(each) for each in told]


def agree(ours: Any, theirs: Any) -> bool:
    """Whether two answers are the same; where Apache Kafka fails in itself (UNKNOWN_SERVER_ERROR), any error is."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        if theirs.get("error_code") == -1:
            return ours.get("error_code") not in (None, 0)
        return ours.keys() == theirs.keys() and all(agree(ours[name], theirs[name]) for name in theirs)
    if isinstance(theirs, list) and isinstance(ours, list):
        return len(ours) == len(theirs) and all(itertools.starmap(agree, zip(ours, theirs, strict=True)))
    return bool(ours == theirs)


def answers(world: World, api: str, versions: tuple[int, int]) -> dict[str, dict[str, Any]]:
    """Case -> versions ("0-3" for neighbours that agree) -> normalised response, or responses."""
    key = api_key(api)
    low, high = (0, 0) if api == CLASSIC_ON_MODERN else versions
    told: dict[str, dict[str, Any]] = {}
    for name, make in CASES[api](world):
        runs: list[tuple[int, int, Any]] = []
        for version in range(low, high + 1):
            made = make(version)
            if made is None:
                continue
            answer = _converse(world, key, version, made)
            if runs and runs[-1][2] == answer and runs[-1][1] == version - 1:
                runs[-1] = (runs[-1][0], version, answer)
            else:
                runs.append((version, version, answer))
        told[name] = {f"{first}-{last}": answer for first, last, answer in runs}
    return told
