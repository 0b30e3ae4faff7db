"""The keys that looks have met: those of the newest looks are known, whoever else looks."""

from __future__ import annotations

from kbroker.tools.console.state import SeenKeys


def test_one_who_goes_on_and_on_forgets_nobody_else() -> None:
    kept = SeenKeys(most_keys=100)
    other = kept.keep("other", frozenset([b"k"]))
    words, keys = list[str](), frozenset[bytes]()
    for number in range(30):
        keys |= {b"%d" % number}
        words.append(kept.keep("me", keys))
    assert [kept.find("me", word) is None for word in words] == [True] * 28 + [False] * 2
    assert kept.find("me", words[-1]) == keys
    assert kept.find("other", other) == frozenset([b"k"]) and kept.find("me", other) is None


def test_the_oldest_are_forgotten_and_the_newest_is_always_kept() -> None:
    kept = SeenKeys(most_keys=3)
    first = kept.keep("a", frozenset([b"1", b"2"]))
    second = kept.keep("b", frozenset([b"1", b"2", b"3", b"4"]))
    assert kept.find("a", first) is None and len(kept.find("b", second) or ()) == 4
