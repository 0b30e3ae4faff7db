"""The screen, drawn of made-up clusters; what keys do to it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from docs.top_page import sample
from kbroker.tools.top.cells import seconds
from kbroker.tools.top.command import metrics_url
from kbroker.tools.top.document import document
from kbroker.tools.top.history import first
from kbroker.tools.top.keys import Sort, Ui, keys_of, press
from kbroker.tools.top.screen import Shown, draw, plain
from kbroker.tools.top.tables import VIEWS, Views
from kbroker.tools.top.terminal import changes, painted
from tests.top.looks import look, topic
from tests.with_each import examples

SAMPLE = Views(sample())
VIEW = {name: index for index, (name, _) in enumerate(VIEWS)}


def lines(shown: Shown) -> list[str]:
    return plain(shown.lines).splitlines()


@settings(max_examples=examples(30))
@given(st.integers(1, 140), st.integers(1, 50), st.integers(0, 6), st.booleans(), st.text(max_size=5), st.booleans())
def test_a_screen_has_the_size_of_its_terminal(
    width: int, height: int, view: int, has_help: bool, words: str, typing: bool
) -> None:
    ui = Ui(view=view, has_help=has_help, filter=words, is_typing=typing, scroll=3)
    for views in (SAMPLE, None):
        shown = draw(views, ui, width, height, "")
        assert len(shown.lines) == height
        assert all(sum(cell_len(span.text) for span in line) <= width for line in shown.lines)


def test_before_the_first_answer_it_says_what_it_waits_for() -> None:
    assert lines(draw(None, Ui(), 80, 5))[:2] == ["kbroker top", "asking the cluster ..."]
    assert "cannot connect" in lines(draw(None, Ui(), 80, 5, "cannot connect to h:1: refused"))[1]


def test_the_overview_has_troubles_in_words_and_the_first_of_everything() -> None:
    text = plain(draw(SAMPLE, Ui(), 118, 40).lines)
    assert "nodes 2 of 3 up" in text and "under-replicated 8" in text and "records/s in 10,749" in text
    assert "Broker 3 is fenced" in text
    for name in ("kafka1:9092", "orders", "warehouse", "payments-1", "Produce"):
        assert name in text


@pytest.mark.parametrize(
    ("view", "row"),
    [
        ("nodes", ["1 *", "kafka1:9092", "up", "5", "8", "0", "7,126", "3.7 MiB/s", "7.4 MiB/s", "42", "31%"]),
        ("topics", ["orders", "3", "3", "1,310", "122.8 KiB/s", "245.6 KiB/s", "274.9 MiB", "3 under-replicated"]),
        ("groups", ["warehouse", "classic", "Stable", "3", "5,016", "94 s"]),
        ("partitions", ["clicks-0", "under-replicated", "1", "1,2,3", "1,2", "3"]),
        ("transactions", ["payments-1", "Ongoing", "75 s", "212", "1", "4001", "2"]),
        ("requests", ["Produce", "1", "400", "0.4", "3.1", "-", "0.31", "2.2", "-", "-"]),
    ],
)
def test_views(view: str, row: list[str]) -> None:
    shown = lines(draw(SAMPLE, Ui(view=VIEW[view]), 160, 30))
    found = [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in shown]
    assert row in [each[: len(row)] for each in found]


def test_rows_are_sorted_by_the_column_that_is_chosen() -> None:
    ui = Ui(view=VIEW["topics"])

    def names(ui: Ui) -> list[str]:
        return [line.split()[0] for line in lines(draw(SAMPLE, ui, 160, 30)) if line.endswith(" under-replicated")]

    assert names(ui) == ["clicks", "orders", "payments"]  # by records, most first
    assert names(press(ui, "r", 8, 3, 10)) == ["payments", "orders", "clicks"]
    by_name = replace(ui, sorts={ui.view: Sort(0)})
    assert names(by_name) == ["clicks", "orders", "payments"]
    assert names(press(by_name, "r", 8, 3, 10)) == ["payments", "orders", "clicks"]


def test_a_filter_leaves_rows_with_all_its_words() -> None:
    ui = Ui(view=VIEW["topics"], filter="der OR")
    shown = plain(draw(SAMPLE, ui, 120, 30).lines)
    assert "orders" in shown and "clicks" not in shown and "filter: der OR" in shown
    assert "nothing fits the filter" in plain(draw(SAMPLE, replace(ui, filter="x"), 120, 30).lines)


def test_scrolling_ends_at_the_last_row() -> None:
    history = Views(first(look(0.0, {}, topics=[topic(f"t{number:03}", 1) for number in range(100)])))
    ui = Ui(view=VIEW["topics"], sorts={VIEW["topics"]: Sort(0)})
    shown = draw(history, ui, 100, 20)
    ui = replace(press(ui, "end", shown.columns, shown.default_sort, shown.page))
    shown = draw(history, ui, 100, 20)
    assert shown.scroll == 100 - shown.page and "t099" in plain(shown.lines)
    assert "t000" in plain(draw(history, press(ui, "g", 8, 3, shown.page), 100, 20).lines)


def test_a_part_is_told_of() -> None:
    topics = [topic("t", 5000)]
    history = first(look(0.0, {("t", number): 0 for number in range(2000)}, topics=topics))
    assert "each look asks for 2,000 of 5,000 partitions in turn; 2,000 are known" in plain(
        draw(Views(history), Ui(view=VIEW["topics"]), 120, 20).lines
    )


def test_names_cannot_command_the_terminal() -> None:
    evil = "a\x1b]0;owned\x07"
    history = first(
        look(0.0, {("t", 0): 5}, committed={evil: {("t", 0): 1}}, problems=("bad \x1b[2J",), cluster_id=evil)
    )
    for view in range(len(VIEWS)):
        for line in draw(Views(history), Ui(view=view, filter="\x9b"), 100, 30).lines:
            assert all(span.text.isprintable() for span in line)


def test_keys_of_a_terminal() -> None:
    typed = "q?1\x1b[A\x1b[B\x1bOA\x1b[6~\x1b[Z\t\r\x7f\x1b"
    assert keys_of(typed) == [
        "q",
        "?",
        "1",
        "up",
        "down",
        "up",
        "pagedown",
        "backtab",
        "tab",
        "enter",
        "backspace",
        "escape",
    ]
    assert keys_of("\x1b[99~\x01ä") == ["ä"]


def test_keys() -> None:
    def after(*keys: str, ui: Ui | None = None) -> Ui:
        ui = ui or Ui()
        for key in keys:
            ui = press(ui, key, 6, 4, 10)
        return ui

    assert after("3").view == 2 and after("tab").view == 1 and after("backtab").view == len(VIEWS) - 1
    assert after("9").view == 0 and after("3", "down", "down", "1").scroll == 0
    assert after("/", "o", "q", "backspace", "r").filter == "or" and not after("/", "q").is_over
    typed = after("/", "a", "enter")
    assert (typed.filter, typed.is_typing) == ("a", False) and after("escape", ui=typed).filter == ""
    assert after("/", "a", "escape").filter == ""
    assert after(" ").is_paused and not after(" ", " ").is_paused
    assert after("?").has_help and not after("?", "?").has_help and not after("?", "2").has_help
    assert after("s").sorts == {0: Sort(5)} and after("s", "s").sorts == {0: Sort(0)}
    assert after("S", "r").sorts == {0: Sort(3, True)}
    assert after("+").interval == 1.0 and after("-").interval == 5.0 and after("+", "+").interval == 1.0
    assert after("q").is_over
    assert after("pagedown", "down", "up", "up", "pageup").scroll == 0


def test_only_lines_that_change_are_written() -> None:
    assert changes(["a", "b"], ["a", "b"]) == ""
    written = changes(["a", "b"], ["a", "c"])
    assert "\x1b[2;1Hc\x1b[K" in written and "\x1b[1;1H" not in written
    assert "\x1b[1;1Ha" in changes(None, ["a"])


def test_colours() -> None:
    [line] = draw(None, Ui(), 40, 2, "no answer").lines[1:]
    assert "\x1b[33m" in painted(line, colours=True)
    assert painted(line, colours=False) == "\x1b[1mno answer\x1b[0m"


@pytest.mark.parametrize(
    ("value", "shown"), [(0, "0 s"), (2.5, "2.5 s"), (94, "94 s"), (600, "10 min"), (8000, "2.2 h"), (400_000, "5 d")]
)
def test_lengths_of_time(value: float, shown: str) -> None:
    assert seconds(value) == shown


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("localhost:9404", "http://localhost:9404/metrics"),
        ("http://n:1/", "http://n:1/metrics"),
        ("https://n/x?dialect=strimzi", "https://n/x?dialect=strimzi"),
        ("nothing", None),
        ("file:///etc/passwd", None),
        ("http://h:99999", None),
    ],
)
def test_addresses_of_pages(text: str, url: str | None) -> None:
    if url is None:
        with pytest.raises(ValueError):
            metrics_url(text)
    else:
        assert metrics_url(text) == url


def test_the_document_is_json_and_has_what_the_views_have() -> None:
    found = json.loads(json.dumps(document(sample())))
    [orders] = [each for each in found["topics"] if each["name"] == "orders"]
    assert round(orders["records_in_per_second"]) == 1310 and orders["under_replicated"] == 3
    [warehouse] = [each for each in found["groups"] if each["group"] == "warehouse"]
    assert (warehouse["lag"], warehouse["lag_seconds"], warehouse["lag_seconds_exact"]) == (5016, 94.0, True)
    assert found["transactions"][0]["holds_up_records"] == 212
    assert {each["api"] for each in found["requests"]} == {"Produce", "Fetch", "OffsetCommit"}
