"""The parts of records that are hidden."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.client.records_io.record_filter import parse_filter
from kbroker.tools.console.masking import MASK, MASKED, Masking, parse_mask
from kbroker.tools.console.record_view import LIST_JSON_LIMIT, MAX_HEADERS, shown_part, shown_record
from kbroker.tools.console.scan import Found, RecordView
from kbroker.wire.batch_header import TimestampType
from kbroker.wire.record_batch import Record

SECRET = "4111-1111"


def masked(rule: str, value: bytes | None, *, topic: str = "payments-eu") -> bytes | None:
    return Masking([parse_mask(rule)], topic).apply(Record(0, 0, b"key", value, (("h", b"x"),))).value


def document(**members: object) -> bytes:
    return json.dumps(members).encode()


def test_a_path_hides_one_member() -> None:
    value = document(card=SECRET, amount=3)
    assert json.loads(masked("payments-*=$.card", value) or b"") == {"card": MASK, "amount": 3}
    assert masked("orders=$.card", value) == value


def test_a_path_goes_through_arrays() -> None:
    value = document(cards=[{"no": SECRET}, {"no": SECRET, "x": 1}], other=[1])
    assert SECRET not in (masked("*=$.cards.no", value) or b"").decode()
    assert json.loads(masked("*=$.cards[1].no", value) or b"")["cards"][0]["no"] == SECRET


def test_what_is_not_json_is_hidden_as_a_whole() -> None:
    for value in (SECRET.encode(), b"\xff\x00", b'{"card": "' + SECRET.encode(), b"[" * 50_000):
        assert masked("*=$.card", value) == MASKED


def test_of_two_members_of_one_name_neither_is_shown() -> None:
    assert SECRET not in (masked("*=$.card", b'{"card": "4111-1111", "card": "4111-1111"}') or b"").decode()


def test_null_stays_null() -> None:
    assert masked("*=value,key", None) is None


def test_whole_parts() -> None:
    record = Masking([parse_mask("*=key,headers")], "t").apply(Record(0, 0, b"key", b"v", (("h", b"x"), ("n", None))))
    assert record == Record(0, 0, MASKED, b"v", (("h", MASKED), ("n", None)))


def test_what_is_hidden_cannot_be_looked_for() -> None:
    masking = Masking([parse_mask("*=$.card")], "t")
    record = Record(0, 0, None, document(card=SECRET))
    for text in ("4111", f'$.card = "{SECRET}"', "value ~ 1111", "$.card ~ 4"):
        look = RecordView("t", parse_filter(text), masking)
        assert look.sift(0, record, TimestampType.CREATE_TIME) is None


def test_the_page_gets_no_bytes_of_what_is_hidden() -> None:
    masking = Masking([parse_mask("*=key")], "t")
    found = Found(0, masking.apply(Record(0, 0, SECRET.encode(), b"v")), TimestampType.CREATE_TIME)
    shown = shown_record(found, masking, whole=True)
    assert shown["key"] == {"kind": "masked", "text": MASK, "size": 0, "cut": False}
    assert SECRET.encode().hex() not in json.dumps(shown)


BAD_MASKS = ["", "topic", "topic=", "=key", "topic=keys", "topic=key,,value", "topic=$.a..b", "t=$["]


@pytest.mark.parametrize("text", BAD_MASKS)
def test_a_mask_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not"):
        parse_mask(text)


@given(data=st.binary(max_size=300), limit=st.integers(4, 80))
def test_any_bytes_can_be_shown(data: bytes, limit: int) -> None:
    shown = shown_part(data, limit=limit)
    assert shown["size"] == len(data)
    assert isinstance(shown["text"], str) and len(shown["text"]) <= 2 * limit
    whole = shown_part(data, limit=1000, whole=True)
    assert whole["hex"] == data.hex()
    if whole["kind"] == "text":
        assert whole["text"] == data.decode()


DEEP = 900
STRANGE = [
    b'{"a": "\\ud800"}',
    b"[" * DEEP + b"]" * DEEP,
    b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    b'{"card": 1, "b": "\\udfff"}',
]


@pytest.mark.parametrize("value", STRANGE)
def test_a_strange_document_is_shown_or_hidden_and_never_an_error(value: bytes) -> None:
    for rule in ("*=$.card", "*=$" + ".a" * 900):
        masking = Masking([parse_mask(rule)], "t")
        found = Found(0, masking.apply(Record(0, 0, None, value)), TimestampType.CREATE_TIME)
        for whole in (False, True):
            json.dumps(shown_record(found, masking, whole=whole), ensure_ascii=False).encode()
    for whole in (False, True):
        json.dumps(shown_part(value, limit=100, whole=whole), ensure_ascii=False).encode()


def test_letters_beyond_ascii_stay_what_they_are() -> None:
    assert masked("*=$.card", '{"card":1,"name":"Zoë"}'.encode()) == f'{{"card":"{MASK}","name":"Zoë"}}'.encode()


def test_a_list_does_not_parse_what_is_large() -> None:
    value = b"[" + b"1," * LIST_JSON_LIMIT + b"1]"
    assert shown_part(value, limit=100)["kind"] == "text"
    assert shown_part(value, limit=100, whole=True)["kind"] == "json"


def test_of_many_headers_the_first_are_told() -> None:
    headers = tuple(("", None) for _ in range(MAX_HEADERS + 5))
    shown = shown_record(Found(0, Record(0, 0, None, None, headers), TimestampType.CREATE_TIME), Masking((), "t"))
    assert isinstance(shown["headers"], list)
    assert (len(shown["headers"]), shown["more_headers"]) == (MAX_HEADERS, 5)
