"""The formats in which consume shows a record."""

from __future__ import annotations

import json

import pytest

from kbroker.client.records_io.json_records import json_formatter
from kbroker.tools.cli.record_format import FIELDS, line_formatter, readable, template_formatter, value_formatter
from kbroker.wire.batch_header import TimestampType
from kbroker.wire.record_batch import Record

CREATE = TimestampType.CREATE_TIME
RECORD = Record(42, 1_700_000_000_123, b"k", "zwölf\n".encode(), (("trace", b"x"), ("raw", b"\xff"), ("none", None)))


def test_a_line_for_people() -> None:
    assert line_formatter()("t", 3, RECORD, CREATE).decode() == (
        "2023-11-14T22:13:20.123Z 3:42 k zwölf\\n {trace: x, raw: 0xff, none: null}\n"
    )
    assert line_formatter(in_hex=True)("t", 3, RECORD._replace(headers=()), CREATE) == (
        b"2023-11-14T22:13:20.123Z 3:42 0x6b 0x7a77c3b66c660a\n"
    )
    assert line_formatter()("t", 0, Record(0, -1, None, None), CREATE) == b"- 0:0 null null\n"


def test_a_terminal_is_not_played_tricks_on() -> None:
    assert readable(b"\x1b]0;title\x07\x1b[2J") == "\\x1b]0;title\\x07\\x1b[2J"
    assert readable("\u202e\u2028".encode()) == "\\u202e\\u2028"


def test_json() -> None:
    found = json.loads(json_formatter()("t", 3, RECORD, TimestampType.LOG_APPEND_TIME))
    assert found == {
        "topic": "t",
        "partition": 3,
        "offset": 42,
        "timestamp": 1_700_000_000_123,
        "timestamp_type": "LogAppendTime",
        "key": "k",
        "value": "zwölf\n",
        "headers": [["trace", "x"], ["raw", {"value_base64": "/w=="}], ["none", None]],
    }
    binary = json.loads(json_formatter()("t", 3, Record(0, 1, b"\xff", None), CREATE))
    assert binary["key_base64"] == "/w==" and "key" not in binary and binary["value"] is None


@pytest.mark.parametrize(
    ("value", "shown"), [(b'{"a": [1]}', {"a": [1]}), (b"x", "x"), (b"3", 3), (None, None), (b"NaN", "NaN")]
)
def test_json_values(value: bytes | None, shown: object) -> None:
    line = json_formatter(parse_values=True)("t", 0, Record(0, 1, None, value), CREATE)
    assert json.loads(line)["value"] == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b'{"a":1.10,"a":1e400}', '{"a":1.10,"a":1e400}'),
        (b"\n[0.12345678901234567890,\r\n 1E5]\n", "[0.12345678901234567890,   1E5]"),
        (b'"\\ud800\\n"', '"\\ud800\\n"'),
    ],
)
def test_json_values_are_put_in_as_they_stand(value: bytes, shown: str) -> None:
    line = json_formatter(parse_values=True)("t", 0, Record(0, 1, None, value), CREATE)
    assert f'"value": {shown}, "headers"'.encode() in line and line.count(b"\n") == 1
    json.loads(line)


def test_values_alone() -> None:
    assert value_formatter("t", 0, Record(0, 1, b"k", b"\xff\n"), CREATE) == b"\xff\n\n"
    assert value_formatter("t", 0, Record(0, 1, b"k", None), CREATE) == b"\n"


def test_every_name_of_a_template() -> None:
    template = "|".join(f"{{{name}}}" for name in FIELDS) + "\\n{{}}"
    raw = Record(42, 1_700_000_000_123, b"k", b"\xff", (("a", b"1"), ("b", None)))
    assert template_formatter(template)("t", 3, raw, CREATE) == (
        b"t|3|42|2023-11-14T22:13:20.123Z|1700000000123|CreateTime|k|\xff|a=1,b=|6b|ff|aw==|/w==|1|1\n{}"
    )
    assert template_formatter("{key}{key_hex}{key_size}")("t", 0, Record(0, 1, None, b""), CREATE) == b"-1"


@pytest.mark.parametrize("template", ["{", "}", "{x}", "{}", "{0}", "{key.__class__}", "{key!r}", "{offset:>5}"])
def test_templates_that_are_wrong(template: str) -> None:
    with pytest.raises(ValueError, match="template"):
        template_formatter(template)
