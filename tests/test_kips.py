"""docs/kips/ says what is so: its paths and tests exist, and no KIP that the code names is left out."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache

from docs.generate import DOCS
from docs.kip_table import ELSEWHERE, IN_PART, NOT, STATES, THEMES, WHOLE, Kip, load, load_elsewhere
from kbroker.config.absent import ALL_BROKER_CONFIGS, REFUSED
from kbroker.handlers import load_handlers
from kbroker.handlers.registration import BROKER, CONTROLLER, registrations
from kbroker.wire.registry import API_KEYS, api_named
from tests.with_each import with_each

ROOT = DOCS.parent
KIPS = load()
RELEASES = list(dict.fromkeys(kip.release for kip in KIPS))


@cache
def functions_of(path: str) -> frozenset[str]:
    """The names of the test functions of a file."""
    found = re.findall(r"^ *(?:async )?def (test_\w+)\(", (ROOT / path).read_text("utf-8"), flags=re.MULTILINE)
    return frozenset(found)


def test_each_kip_has_one_row() -> None:
    assert len(KIPS) > 300
    numbers = [*(kip.number for kip in KIPS), *(number for some in load_elsewhere().values() for number in some)]
    assert [number for number, count in Counter(numbers).items() if count > 1] == []


@with_each([kip for kip in KIPS if kip.release == release] for release in RELEASES)
def test_what_the_rows_name_exists(kips: list[Kip]) -> None:
    assert [(kip.number, path) for kip in kips for path in kip.code if not (ROOT / path).exists()] == []
    named = [(kip.number, *test.split("::")) for kip in kips for test in kip.tests]
    assert [test for test in named if test[2] not in functions_of(test[1])] == []


def test_a_row_says_enough() -> None:
    for kip in KIPS:
        assert kip.title and kip.state in STATES and kip.theme in ("", *THEMES), kip
        if kip.state == WHOLE:
            assert kip.code and kip.tests and not kip.note, f"what is whole has code and a test that shows it: {kip}"
        else:
            assert kip.note, f"say what is missing, or why it does not apply: {kip}"
        if kip.state in (WHOLE, ELSEWHERE):
            assert not kip.theme, kip
        if kip.state == IN_PART:
            assert kip.code, f"a part of it is somewhere: {kip}"


def test_every_kip_that_the_code_names_has_a_row() -> None:
    known = {kip.number for kip in KIPS}
    unknown = {
        f"{path.relative_to(ROOT)}: KIP-{number}"
        for path in sorted((ROOT / "kbroker").rglob("*.py"))
        for number in re.findall(r"KIP-(\d+)", path.read_text("utf-8"))
        if int(number) not in known
    }
    assert unknown == set()


def test_what_the_code_names_is_not_called_missing() -> None:
    named = Counter(
        int(number)
        for path in (ROOT / "kbroker").rglob("*.py")
        if path.relative_to(ROOT / "kbroker").parts[0] != "config" and "records" not in path.parts
        for number in set(re.findall(r"KIP-(\d+)", path.read_text("utf-8")))
    )
    by_number = {kip.number: kip for kip in KIPS}
    assert [n for n, count in named.items() if count > 1 and by_number[n].state in (NOT, ELSEWHERE)] == []


def test_apis_that_are_called_missing_are_those_that_are_missing() -> None:
    """Notes say "key 93 is missing", "keys 76 to 79 and 88 are missing"."""
    load_handlers()
    served = {**registrations(BROKER), **registrations(CONTROLLER)}
    missing: set[int] = set()
    for kip in KIPS:
        for keys in re.findall(r"keys? ([\d, toand]+) (?:is|are) missing", kip.note):
            for first, last in re.findall(r"(\d+)(?: to (\d+))?", keys):
                missing.update(range(int(first), int(last or first) + 1))
    assert missing & set(served) == set(), "these are served by now"
    assert set(API_KEYS) - set(served) - missing == set(), "no row says that these are missing"


def test_versions_that_are_called_the_last_are() -> None:
    """Notes say "Fetch ends at version 18"."""
    load_handlers()
    served = {**registrations(BROKER), **registrations(CONTROLLER)}
    found = [claim for kip in KIPS for claim in re.findall(r"(\w+) ends at version (\d+)", kip.note)]
    assert found
    assert [(name, last) for name, last in found if served[api_named(name).key].versions[1] != int(last)] == []


def test_properties_that_are_called_without_effect_are() -> None:
    """Notes say that a property "has no effect", or that a node with it "does not start"."""
    for kip in KIPS:
        for part in re.split(r"[;,]", kip.note):
            names = [name for name in re.findall(r"`([a-z.]+)`", part) if name in ALL_BROKER_CONFIGS]
            if "no effect" in part:
                assert [name for name in names if not ALL_BROKER_CONFIGS[name].no_effect] == [], kip
            if "does not start" in part:
                assert [name for name in names if name not in REFUSED] == [], kip
