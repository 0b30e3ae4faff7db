"""The reader of properties files against what java.util.Properties makes of the same text."""

from pathlib import Path

import pytest

from kbroker.config import parse_properties, read_properties_file
from kbroker.errors import FatalError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("a = b ", {"a": "b "}),
        ("a:b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("a\tb=c", {"a": "b=c"}),
        ("a : = b", {"a": "= b"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("=b", {"": "b"}),
        ("# no\n! no\n   # no\n\n a=1", {"a": "1"}),
        ("a=1#2", {"a": "1#2"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1,\\\n   2,\\\n\t3", {"a": "1,2,3"}),
        ("a=1\\\n# not a comment", {"a": "1# not a comment"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=1\\", {"a": "1"}),
        ("a\\=b=c", {"a=b": "c"}),
        ("a\\ b=c", {"a b": "c"}),
        ("a=\\tb\\nc\\q", {"a": "\tb\ncq"}),
        ("a=\\u00e9\\uD83D\\uDE00", {"a": "é😀"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("listeners=PLAINTEXT://:9092,CONTROLLER://:9093", {"listeners": "PLAINTEXT://:9092,CONTROLLER://:9093"}),
    ],
)
def test_reads_as_java(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


def test_files(tmp_path: Path) -> None:
    (tmp_path / "utf8").write_bytes("log.dirs=/data/é".encode())
    (tmp_path / "latin1").write_bytes("log.dirs=/data/é".encode("latin-1"))
    assert read_properties_file(tmp_path / "utf8") == {"log.dirs": "/data/é"}
    assert read_properties_file(tmp_path / "latin1") == {"log.dirs": "/data/é"}


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(FatalError, match="No such file"):
        read_properties_file(tmp_path / "missing")
    (tmp_path / "broken").write_text("a=\\u12")
    with pytest.raises(FatalError, match=r"broken: malformed"):
        read_properties_file(tmp_path / "broken")
