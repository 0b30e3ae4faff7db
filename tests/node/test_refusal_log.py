"""The log of a listener about clients that it refuses, however many there are."""

from __future__ import annotations

import logging

from kbroker.node.serving.refusal_log import INTERVAL_SECONDS, MAX_ADDRESSES, RefusalLog


def log() -> tuple[RefusalLog, list[str]]:
    lines: list[str] = []
    return RefusalLog("L", lambda level, text: lines.append(text)), lines


def test_each_address_and_kind_has_its_line() -> None:
    refusals, lines = log()
    for _ in range(1235):
        refusals.add(0, "10.0.0.66", "login", "noise")
    refusals.add(1, "10.0.0.1", "login", "a wrong password", logging.INFO)
    refusals.add(1, "10.0.0.66", "time", "too slow")
    assert lines == ["L: noise", "L: a wrong password", "L: too slow"]
    assert refusals.has_untold
    refusals.flush(INTERVAL_SECONDS)
    assert lines[3:] == ["L: and 1,234 more from 10.0.0.66, the last: noise"]
    assert not refusals.has_untold
    refusals.add(INTERVAL_SECONDS + 1, "10.0.0.66", "login", "again")
    assert len(lines) == 4, "ten seconds from the last line on"
    refusals.flush(2 * INTERVAL_SECONDS)
    assert lines[4:] == ["L: and 1 more from 10.0.0.66, the last: again"]
    refusals.flush(9 * INTERVAL_SECONDS)
    assert not refusals._told


def test_any_number_of_addresses_takes_bounded_memory_and_few_lines() -> None:
    refusals, lines = log()
    for number in range(10_000):
        refusals.add(0, f"address {number}", "login", f"no {number}")
    assert len(lines) == len(refusals._told) == MAX_ADDRESSES + 1
    refusals.flush(INTERVAL_SECONDS)
    assert lines[-1] == f"L: and {10_000 - MAX_ADDRESSES - 1:,} more from other addresses, the last: no 9999"


def test_a_clients_text_begins_no_line_of_its_own() -> None:
    refusals, lines = log()
    refusals.add(0, "a", "login", "no rule fits CN=x\n2026-01-01 INFO all is well\x1b[2J" + 1000 * "y")
    assert len(lines) == 1
    assert lines[0].isprintable()
    assert len(lines[0]) < 600
