"""The language by which records are looked for."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.client.records_io.record_filter import MAX_LENGTH, BadFilter, Subject, parse_filter
from kbroker.wire.record_batch import Record

VALUE = json.dumps(
    {
        "id": 42,
        "total": 9.5,
        "state": "paid",
        "ok": True,
        "none": None,
        "tags": ["a", "b"],
        "customer": {"name": "Ada Lovelace", "odd name": 1, "orders": [{"n": 1}, {"n": 2}]},
        "big": 9007199254740993,
    }
).encode()
RECORD = Record(17, 1_700_000_000_000, b"order-17", VALUE, (("trace", b"abc"), ("none", None)))


def fits(text: str, record: Record = RECORD, partition: int = 3) -> bool:
    judge = parse_filter(text)
    assert judge is not None
    return judge(Subject(partition, record))


@pytest.mark.parametrize(
    "text",
    [
        "paid",
        "order-17",
        '"Ada Lovelace"',
        "'Ada Lovelace'",
        "key = order-17",
        "key ~ 17",
        "value ~ Lovelace",
        "value !~ Babbage",
        "$.id = 42",
        "$.id != 43",
        "$.id > 41.5 and $.id <= 42",
        "$.total = 9.5",
        "$.state = paid",
        '$.state = "paid"',
        "$.ok = true",
        "$.tags ~ b",
        "$.tags[0] = a",
        "$.customer.name ~ Love",
        "$.customer['odd name'] = 1",
        '$.customer["odd name"] = 1',
        "$.customer.orders[1].n = 2",
        "$.big = 9007199254740993",
        "$.none is null",
        "$.missing is null",
        "$.id is not null",
        "$.customer",
        "header.trace = abc",
        "header.none is null",
        "header.other is null",
        "partition = 3",
        "offset = 17",
        "offset >= 17 and offset < 18",
        "timestamp > 1600000000000",
        "size > 10",
        "value is not null",
        "not value is null",
        "value is json",
        "not value is not json",
        "value is object and value is not array and value is text",
        "$.total is number and $.id is number and $.state is text",
        "$.ok is boolean and $.ok is not number",
        "$.tags is array and $.customer is object",
        "$.missing is missing and $.none is not missing and $.none is null",
        "$.missing is not number",
        "key is text and key is not json and key is not number",
        "header.trace is text and header.other is missing",
        r"key matches ^order-\d+$",
        r"$.state matches '(?i)^PA(ID|ST)$'",
        "value matches 'Ada L[a-z]+'",
        "$.tags matches ^b$",
        "not $.id matches 42",
        "header.trace matches b.$",
        "nothing or paid",
        "paid and not nothing",
        "(nothing or paid) and $.id = 42",
        "$.id = 1 or $.id = 42 and $.state = paid",
        "NOT nothing AND paid",
    ],
)
def test_what_fits(text: str) -> None:
    assert fits(text)


@pytest.mark.parametrize(
    "text",
    [
        "nothing",
        "key = order",
        "$.id = '42x'",
        "$.ok = 1",
        "$.id > paid",
        "$.state > 3",
        "$.missing = 1",
        "$.missing",
        "$.none is not null",
        "$.big = 9007199254740992",
        "$.customer.orders[2].n is not null",
        "not paid",
        "paid and nothing",
        "$.tags ~ c",
        "$.total is text",
        "value is number",
        "key is missing",
        "key matches ^17",
        "$.missing matches .*",
        "header.trace = ab",
        "partition != 3",
        "value is null",
    ],
)
def test_what_does_not(text: str) -> None:
    assert not fits(text)


def test_records_without_a_value_or_with_bytes_fit_nothing_of_json() -> None:
    for value in (None, b"\xff\xfe", b"{", b"NaN"):
        record = Record(0, 0, None, value)
        assert not fits("$.id = 42", record)
        assert fits("$.id is null", record)
        assert fits("value is not json", record) and not fits("value is json", record)
    assert fits("value is null", Record(0, 0, b"k", None))
    assert fits("key is null", Record(0, 0, None, b"v"))


def test_keys_that_are_numbers_are_compared_as_numbers() -> None:
    assert fits("key > 9", Record(0, 0, b"10", None))
    assert not fits("key > 9", Record(0, 0, b"ten", None))


def test_what_numbers_and_bytes_are() -> None:
    assert fits("key is number and value is number", Record(0, 0, b"10", b"-1.5"))
    assert fits("value is boolean", Record(0, 0, None, b"true")) and fits("value is array", Record(0, 0, None, b"[]"))
    binary = Record(0, 0, None, b"\xff\xfe")
    assert not fits("value is text", binary) and fits("value is not text and value is not null", binary)
    assert fits("value is not missing and value is not text", Record(0, 0, None, None))


def test_a_regular_expression_takes_time_in_proportion_to_the_text() -> None:
    """By Python's own engine this one takes longer than the universe lasts."""
    assert not fits("value matches '^(a+)+$'", Record(0, 0, None, b"a" * 50_000 + b"!"))


def test_each_fault_is_told_with_an_example() -> None:
    for text in (
        "a b",
        "(a",
        ")",
        "$.id =",
        "nothing = 3",
        "offset = x",
        "size ~ 5",
        "a and",
        "$.id is 3",
        "$.a = null",
    ):
        with pytest.raises(BadFilter, match=r"looks like|as in|use|write"):
            parse_filter(text)


def test_an_empty_filter_is_none() -> None:
    assert parse_filter("") is None
    assert parse_filter("   ") is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('"open', "the quote at 1 has no end"),
        ("a b", "'b' at 3 is one too many"),
        ("(a", "the parenthesis at 1 is not closed"),
        (")", "')' at 1 has nothing before it"),
        ("$.id =", "has no value after it"),
        ("nothing = 3", "'nothing' at 1 is none of key, value"),
        ("header. = 3", "'header.' at 1 is none of key, value"),
        ("timestamp > yesterday", "timestamp is a number of ms, and 'yesterday' at 13 is none"),
        ("offset = '5'", "offset is a number, and '5' at 10 is none"),
        ("size ~ 5", "size is a number: ~ at 6 is for texts"),
        ("a and", "something is missing at the end"),
        ("$.id is 3", "after is at 6 comes one of null, number, text, boolean, object, array, missing, not '3'"),
        ("key is", "comes one of null, json, number, text, boolean, object, array, missing, nothing is there"),
        ("$.id == 3", "'==' at 6 is no operator; it looks like $.id = 42"),
        ("$.id = null", "null at 8 is no value to compare with; write $.id is null"),
        ("a && b", "'&&' at 3 is one too many; write and for it"),
        ("amount > 3", "a member of a JSON value looks like $.amount = 42"),
        ("key matches 'a('", "'a(' at 13 is no regular expression (missing ): a(); it looks like key matches"),
        ("key matches", "'matches' at 5 has no value after it; put texts into quotes: it looks like key matches"),
        ("not " * 100 + "a", "nested too deep"),
        ("(" * 100 + "a" + ")" * 100, "nested too deep"),
        ("x" * (MAX_LENGTH + 1), "longer than"),
    ],
)
def test_what_is_wrong_is_told_in_a_line(text: str, told: str) -> None:
    with pytest.raises(BadFilter) as caught:
        parse_filter(text)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


WORDS = st.lists(
    st.sampled_from(
        ["key", "value", "$.a", "$.a[0]", "$['x']", "header.h", "=", "!=", "~", "!~", "<", ">=", "and", "or", "not",
         "is", "null", "number", "matches", "(", ")", '"text"', "7", "-1.5e3", "true", "word", "$", ".", "[", "'"]
    ),
    max_size=14,
).map(" ".join)  # fmt: skip


@given(text=st.one_of(WORDS, st.text(max_size=60)), value=st.one_of(st.none(), st.binary(max_size=20), st.just(VALUE)))
def test_any_text_is_a_filter_or_told_to_be_none(text: str, value: bytes | None) -> None:
    record = Record(1, 2, b"7", value, (("h", b"1"),))
    try:
        judge = parse_filter(text)
    except BadFilter:
        return
    if judge is not None:
        assert judge(Subject(0, record)) in (True, False)


@given(text=st.text(min_size=1, max_size=20))
def test_a_text_in_quotes_is_looked_for_as_it_is(text: str) -> None:
    quoted = '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    try:
        data = f"before {text} after".encode()
    except UnicodeEncodeError:
        return
    assert fits(f"value ~ {quoted}", Record(0, 0, None, data))
