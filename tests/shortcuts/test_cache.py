"""The cache of shortcuts: which requests are remembered, and when."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from kbroker.node.shortcuts.cache import FIRST_CREDIT, HITS_PER_GROWTH, REMEMBER_EVERY, Shortcut, ShortcutCache
from kbroker.runtime.budgets import DEFAULTS

KEY = 8
"""OffsetCommit, whose shortcut does not grow."""
ANY: Any = None
CONTEXT: Any = SimpleNamespace(api_version=8, budgets=DEFAULTS)


class _Fake(Shortcut):
    """Serves the frames that it has been given."""

    grows: ClassVar[bool] = False

    def __init__(self) -> None:
        self.known: set[bytes] = set()

    def try_serve(self, frame: memoryview, round: Any = None) -> bytes | None:
        return b"served" if bytes(frame) in self.known else None


class _Growing(_Fake):
    grows: ClassVar[bool] = True


@pytest.fixture(params=[_Fake, _Growing])
def kind(request: pytest.FixtureRequest) -> type[_Fake]:
    """The class of shortcut that is made by remembering a request; a test may name the one that it is about."""
    kind: type[_Fake] = request.param
    return kind


@pytest.fixture
def shortcuts(kind: type[_Fake]) -> ShortcutCache:
    """The shortcuts of a connection."""

    def remember(frame: memoryview, request: Any, response: Any, ctx: Any, known: Any) -> _Fake:
        shortcut = known if known is not None and kind.grows else kind()
        shortcut.known.add(bytes(frame))
        return shortcut

    return ShortcutCache(remember_of=lambda api_key: remember)


def _ask(shortcuts: ShortcutCache, frame: bytes, api_key: int = KEY) -> bool:
    """Whether a shortcut serves it; a handler does otherwise."""
    shortcut = shortcuts.known.get(api_key)
    if shortcut is not None and shortcut.try_serve(memoryview(frame)) is not None:
        shortcut.tally.served += 1
        return True
    shortcuts.on_unrecognised(api_key, memoryview(frame), ANY, ANY, CONTEXT)
    return False


def test_the_second_request_is_remembered_and_the_third_recognised(shortcuts: ShortcutCache) -> None:
    assert [_ask(shortcuts, b"a") for _ in range(4)] == [False, False, True, True]
    shortcuts.clear()
    assert not _ask(shortcuts, b"a")


def test_an_api_without_a_shortcut_is_let_through(shortcuts: ShortcutCache) -> None:
    assert not any(_ask(shortcuts, b"a", api_key=3) for _ in range(2 * REMEMBER_EVERY))


@pytest.mark.parametrize("kind", [_Fake])
def test_one_in_many_unrecognised_requests_replaces_what_is_known(shortcuts: ShortcutCache) -> None:
    for _ in range(2):
        _ask(shortcuts, b"a")
    others = [_ask(shortcuts, b"b") for _ in range(REMEMBER_EVERY + 1)]
    assert others == [False] * REMEMBER_EVERY + [True]
    assert not _ask(shortcuts, b"a")


@pytest.mark.parametrize("kind", [_Growing])
def test_a_shortcut_that_grows_does_so_at_once_as_long_as_it_is_of_use(shortcuts: ShortcutCache) -> None:
    for _ in range(2):
        _ask(shortcuts, b"first")
    grown = FIRST_CREDIT // HITS_PER_GROWTH
    for number in range(grown + 1):
        frame = b"%d" % number
        assert not _ask(shortcuts, frame)
    shortcut = shortcuts.known[KEY]
    assert shortcut.try_serve(memoryview(b"%d" % (grown - 1)))
    assert not shortcut.try_serve(memoryview(b"%d" % grown)), "no credit left"
    assert _ask(shortcuts, b"0") and _ask(shortcuts, b"1")
    assert not _ask(shortcuts, b"later") and _ask(shortcuts, b"later"), "two hits have paid for it"
