"""Reading and writing ``server.properties``: the format of Java's ``java.util.Properties``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kbroker.errors import FatalError

_SPACE = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPED = {"\\": "\\\\"} | {letter: f"\\{name}" for name, letter in _ESCAPES.items()}


def read_properties_file(path: str | Path) -> dict[str, str]:
    """The properties of a file; :class:`FatalError` when it cannot be read.

    Text is UTF-8, or Latin-1 (Java's choice) where it is not valid UTF-8, so that a file that means the
    same to both is read the same and a directory name with an accent works without escapes.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise FatalError(f"cannot read {path}: {error.strerror}") from error
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    try:
        return parse_properties(text)
    except ValueError as error:
        raise FatalError(f"{path}: {error}") from error


def parse_properties(text: str) -> dict[str, str]:
    """Names and values; a later line for the same name wins. ``ValueError`` for a broken ``\\u`` escape."""
    result: dict[str, str] = {}
    for line in _logical_lines(text):
        name, value = _split(line)
        result[_unescape(name)] = _unescape(value)
    return result


def _logical_lines(text: str) -> list[str]:
    """Comments and blank lines left out, lines ending in an odd number of backslashes joined to the next."""
    lines: list[str] = []
    pending: str | None = None
    for natural in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        line = natural.lstrip(_SPACE)
        if pending is None and (not line or line[0] in "#!"):
            continue
        joined = (pending or "") + line
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending = joined[:-1]
        else:
            lines.append(joined)
            pending = None
    if pending is not None:
        lines.append(pending)
    return lines


def _split(line: str) -> tuple[str, str]:
    """Split a line at the first ``=``, ``:`` or white space that no backslash precedes."""
    position = 0
    while position < len(line):
        char = line[position]
        if char == "\\":
            position += 2
            continue
        if char in "=:" or char in _SPACE:
            break
        position += 1
    name, rest = line[:position], line[position:].lstrip(_SPACE)
    if rest and rest[0] in "=:":
        rest = rest[1:].lstrip(_SPACE)
    return name, rest


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    result: list[str] = []
    position = 0
    while position < len(text):
        char = text[position]
        position += 1
        if char != "\\":
            result.append(char)
            continue
        if position == len(text):
            break
        char = text[position]
        position += 1
        if char == "u":
            digits = text[position : position + 4]
            if len(digits) != 4 or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
                raise ValueError(f"malformed \\u escape: \\u{digits}")
            result.append(chr(int(digits, 16)))
            position += 4
        else:
            result.append(_ESCAPES.get(char, char))
    # Java's escapes are UTF-16 units: a pair of them is one character.
    return "".join(result).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def format_properties(properties: Mapping[str, str], comment: str) -> str:
    """A file's text that :func:`parse_properties` reads as ``properties``, below a line of comment."""
    lines = [f"# {comment}"]
    for name, value in properties.items():
        lines.append("".join(_escaped(letter, " :=#!") for letter in name) + "=" + _value(value))
    return "\n".join(lines) + "\n"


def _value(text: str) -> str:
    start = len(text) - len(text.lstrip(" "))
    return "\\ " * start + "".join(_escaped(letter, "") for letter in text[start:])


def _escaped(letter: str, special: str) -> str:
    if letter in _ESCAPED:
        return _ESCAPED[letter]
    return f"\\{letter}" if letter in special else letter
