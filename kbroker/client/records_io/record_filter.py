"""The language by which records are looked for. Pure; nothing of it is ever run as a program.

::

    error                                  the word is in the key or the value
    value ~ "not found"   key = order-17   contained; equal. !~ and != are their opposites
    $.customer.id = 42    $.total >= 9.5   a member of a value that is JSON; = != < <= > >= ~ !~
    header.trace ~ abc    partition = 3    a header by its name; partition, offset, timestamp (ms), size
    value is null                          also: is not null; $.a is null holds for a member that is null or missing
    value is not json                      it cannot be read as JSON; also: is json
    $.total is number                      also: text, boolean, object, array, missing; of value: by its JSON
    key matches ^order-\\d+$                a regular expression of RE2, anywhere in a text; (?i) before it: of any case
    a and (b or not c)                     and binds closer than or

A comparison with < <= > >= holds only between numbers, or between texts. What is wrong is told with an example.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from kbroker.base.re2_patterns import Re2Error, compile_re2
from kbroker.client.records_io.json_types import MISSING, STEP, Json, JsonPath, Missing, load_json, look_up, parse_path
from kbroker.wire.record_batch import Record

MAX_LENGTH: Final = 2000
_MAX_DEPTH: Final = 50


class BadFilter(ValueError):
    """The text is not an expression of the language; says where and why in one line."""


class Subject:
    """A record that is judged, its value parsed as JSON once at most."""

    __slots__ = ("_document", "_parsed", "partition", "record")

    def __init__(self, partition: int, record: Record) -> None:
        self.partition = partition
        self.record = record
        self._parsed = False
        self._document: Json | Missing = MISSING

    def document(self) -> Json | Missing:
        """The value as JSON; ``MISSING`` if it is none."""
        if not self._parsed:
            self._parsed = True
            if self.record.value is not None:
                try:
                    self._document = load_json(self.record.value)
                except ValueError:
                    pass
        return self._document


Predicate: TypeAlias = Callable[[Subject], bool]
_Value: TypeAlias = "Json | bytes | Missing"
_Reader: TypeAlias = Callable[[Subject], _Value]


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    """``word``, ``text`` (in quotes), ``path``, ``operator`` or ``end``."""

    text: str
    place: int
    raw: str = ""
    """The text as it was written between its quotes: a regular expression has backslashes of its own."""


_OPERATORS: Final = ("!=", "!~", "<=", ">=", "=", "~", "<", ">", "(", ")")
_QUOTED: Final = re.compile(r'"((?:[^"\\]|\\.)*)"|\'((?:[^\'\\]|\\.)*)\'')
_WORD: Final = re.compile(r"[^\s()=~<>!\"']+")
_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_NUMBERS: Final = ("partition", "offset", "timestamp", "size")
_FIELDS: Final = ("key", "value", "partition", "offset", "timestamp", "size")


def parse_filter(text: str) -> Predicate | None:
    """The judge of a record that the text describes; None for an empty text, which all records fit."""
    if len(text) > MAX_LENGTH:
        raise BadFilter(f"the filter is longer than {MAX_LENGTH} characters")
    tokens = _tokens(text)
    if tokens[0].kind == "end":
        return None
    return _Parser(tokens).parse()


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    place = 0
    while place < len(text):
        if text[place].isspace():
            place += 1
            continue
        token, place = _token(text, place)
        tokens.append(token)
    tokens.append(_Token("end", "", len(text)))
    return tokens


def _token(text: str, place: int) -> tuple[_Token, int]:
    letter = text[place]
    if letter in "\"'":
        match = _QUOTED.match(text, place)
        if match is None:
            raise BadFilter(f'the quote at {place + 1} has no end; it looks like value ~ "not found"')
        inner = next(group for group in match.groups() if group is not None)
        raw = inner.replace("\\" + letter, letter)
        return _Token("text", re.sub(r"\\(.)", r"\1", inner), place, raw), match.end()
    if letter == "$":
        end = place + 1
        while (step := STEP.match(text, end)) is not None:
            end = step.end()
        return _Token("path", text[place:end], place), end
    for operator in _OPERATORS:
        if text.startswith(operator, place):
            return _Token("operator", operator, place), place + len(operator)
    match = _WORD.match(text, place)
    if match is None:
        raise BadFilter(f"{letter!r} at {place + 1} means nothing here")
    return _Token("word", match.group(), place, match.group()), match.end()


class _Parser:
    """Recursive descent: or, and, not, a comparison."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._next = 0
        self._depth = 0

    def parse(self) -> Predicate:
        found = self._either()
        if self._look().kind != "end":
            token = self._look()
            raise _one_too_many(token)
        return found

    def _look(self) -> _Token:
        return self._tokens[self._next]

    def _take(self) -> _Token:
        token = self._tokens[self._next]
        self._next += token.kind != "end"
        return token

    def _takes(self, word: str) -> bool:
        token = self._look()
        fits = token.kind == "word" and token.text.lower() == word
        self._next += fits
        return fits

    def _either(self) -> Predicate:
        parts = [self._both()]
        while self._takes("or"):
            parts.append(self._both())
        return parts[0] if len(parts) == 1 else lambda subject: any(part(subject) for part in parts)

    def _both(self) -> Predicate:
        parts = [self._one()]
        while self._takes("and"):
            parts.append(self._one())
        return parts[0] if len(parts) == 1 else lambda subject: all(part(subject) for part in parts)

    def _one(self) -> Predicate:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise BadFilter("the filter is nested too deep")
        try:
            if self._takes("not"):
                inner = self._one()
                return lambda subject: not inner(subject)
            token = self._look()
            if token.kind == "operator" and token.text == "(":
                self._take()
                inner = self._either()
                closing = self._take()
                if closing.text != ")" or closing.kind != "operator":
                    raise BadFilter(f"the parenthesis at {token.place + 1} is not closed; it looks like (a or b) and c")
                return inner
            return self._comparison()
        finally:
            self._depth -= 1

    def _comparison(self) -> Predicate:
        token = self._take()
        follows = self._look()
        if token.kind == "end":
            raise BadFilter("something is missing at the end; it looks like error and $.id = 42")
        if token.kind == "operator":
            raise BadFilter(f"{token.text!r} at {token.place + 1} has nothing before it; it looks like $.id = 42")
        word = follows.text.lower() if follows.kind == "word" else ""
        if word not in ("is", "matches") and (follows.kind != "operator" or follows.text in "()"):
            if token.kind == "path":
                path = parse_path(token.text)
                return lambda subject: not isinstance(_member(subject, path), Missing)
            return _anywhere(token.text)
        read = self._reader(token)
        self._take()
        if word == "is":
            return self._kind(token, follows, read)
        wanted = self._take()
        if wanted.kind not in ("word", "text"):
            raise _no_value(token, follows, wanted)
        if word == "matches":
            return _matches(read, wanted)
        if wanted.kind == "word" and wanted.text.lower() == "null":
            raise BadFilter(
                f"{wanted.text} at {wanted.place + 1} is no value to compare with; write {token.text} is null"
            )
        if token.text in _NUMBERS and token.kind == "word":
            _check_number(token.text, follows, wanted)
        return _compare(read, follows.text, wanted)

    def _kind(self, token: _Token, follows: _Token, read: _Reader) -> Predicate:
        """The judge by what comes after ``is``: the kind of a value, or ``not`` and that."""
        negated = self._takes("not")
        kind = self._take()
        name = kind.text.lower()
        if kind.kind != "word" or name not in _KINDS or (name == "json" and token.kind == "path"):
            kinds = ", ".join(each for each in _KINDS if each != "json" or token.kind != "path")
            found = f"not {kind.text!r}" if kind.text else "nothing is there"
            raise BadFilter(
                f"after is at {follows.place + 1} comes one of {kinds}, {found}; it looks like {token.text} is not null"
            )
        if token.text == "value" and name not in ("null", "missing", "text"):
            return lambda subject: _is_of(subject.document(), name) is not negated  # which is parsed but once
        return lambda subject: _is_of(read(subject), name) is not negated

    @staticmethod
    def _reader(token: _Token) -> _Reader:
        if token.kind == "path":
            path = parse_path(token.text)
            return lambda subject: _member(subject, path)
        name = token.text
        if token.kind == "word" and name.startswith("header.") and name != "header.":
            return lambda subject: _header(subject.record, name.removeprefix("header."))
        if token.kind != "word" or name not in _FIELDS:
            member = f"$.{name}" if STEP.fullmatch(f".{name}") else "$.customer.id"
            raise BadFilter(
                f"{name!r} at {token.place + 1} is none of {', '.join(_FIELDS)}, header.NAME and $.path;"
                f" a member of a JSON value looks like {member} = 42"
            )
        match name:
            case "key":
                return lambda subject: subject.record.key
            case "value":
                return lambda subject: subject.record.value
            case "partition":
                return lambda subject: subject.partition
            case "offset":
                return lambda subject: subject.record.offset
            case "timestamp":
                return lambda subject: subject.record.timestamp
            case _:
                return lambda subject: len(subject.record.key or b"") + len(subject.record.value or b"")


def _check_number(name: str, operator: _Token, wanted: _Token) -> None:
    """``BadFilter`` for a comparison that no record fits, or every one: that of a number with something else."""
    if operator.text in ("~", "!~"):
        raise BadFilter(f"{name} is a number: {operator.text} at {operator.place + 1} is for texts; use {name} > 100")
    if wanted.kind != "word" or not _NUMBER.fullmatch(wanted.text):
        unit = " of ms" if name == "timestamp" else ""
        example = "1767225600000" if unit else "100"
        raise BadFilter(
            f"{name} is a number{unit}, and {wanted.text!r} at {wanted.place + 1} is none;"
            f" it looks like {name} {operator.text} {example}"
        )


def _one_too_many(token: _Token) -> BadFilter:
    meant = {"&&": "and", "||": "or", "like": "~", "contains": "~", "in": "=", "equals": "="}.get(token.text.lower())
    what = f"write {meant} for it" if meant else "put and or or before it, or quotes around a text with spaces"
    return BadFilter(
        f'{token.text!r} at {token.place + 1} is one too many; {what}, as in value ~ "not found" or $.id = 42'
    )


def _no_value(token: _Token, operator: _Token, wanted: _Token) -> BadFilter:
    if operator.text == wanted.text == "=" or (operator.text, wanted.text) == ("=", "~"):
        told = f"{operator.text + wanted.text!r} at {operator.place + 1} is no operator; it looks like"
        return BadFilter(f"{told} {token.text} = 42, or {token.text} matches ^a.*z$")
    example = {"~": '"not found"', "!~": '"not found"', "matches": "^a.*z$"}.get(operator.text, "42")
    return BadFilter(
        f"{operator.text!r} at {operator.place + 1} has no value after it; put texts into quotes:"
        f" it looks like {token.text} {operator.text} {example}"
    )


_KINDS: Final = ("null", "json", "number", "text", "boolean", "object", "array", "missing")


def _is_of(value: _Value, kind: str) -> bool:
    """Whether a value is of a kind; bytes are what they are as JSON, and text if they are UTF-8."""
    if kind == "null":
        return value is None or isinstance(value, Missing)
    if kind == "missing" or isinstance(value, Missing):
        return kind == "missing" and isinstance(value, Missing)
    if isinstance(value, bytes):
        try:
            value.decode()  # ValueError for what is no text
            if kind == "text":
                return True
            value = load_json(value)
        except ValueError:
            return False
    match kind:
        case "json":
            return True
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "boolean":
            return isinstance(value, bool)
        case "text":
            return isinstance(value, str)
        case "object":
            return isinstance(value, dict)
        case _:
            return kind == "array" and isinstance(value, list)


def _matches(read: _Reader, token: _Token) -> Predicate:
    """The judge by a regular expression of RE2, whose time is linear in the text, whoever writes the expression."""
    try:
        search = compile_re2(token.raw).search
    except Re2Error as error:
        example = "it looks like key matches ^order-[0-9]+$, or in quotes where it has spaces or parentheses"
        raise BadFilter(f"{token.raw!r} at {token.place + 1} is no regular expression ({error}); {example}") from None

    def fits(subject: Subject) -> bool:
        value = read(subject)
        texts = value if isinstance(value, list) else [value]
        return any(
            search(each if isinstance(each, bytes) else each.encode(errors="surrogatepass")) is not None
            for each in texts
            if isinstance(each, bytes | str)
        )

    return fits


def _member(subject: Subject, path: JsonPath) -> Json | Missing:
    document = subject.document()
    return document if isinstance(document, Missing) else look_up(document, path)


def _header(record: Record, name: str) -> bytes | Missing | None:
    for header, content in record.headers:
        if header == name:
            return content
    return MISSING


def _anywhere(text: str) -> Predicate:
    wanted = text.encode()
    return lambda subject: wanted in (subject.record.key or b"") or wanted in (subject.record.value or b"")


def _compare(read: _Reader, operator: str, token: _Token) -> Predicate:
    wanted = _literal(token)
    match operator:
        case "=":
            return lambda subject: _equal(read(subject), wanted, token.text)
        case "!=":
            return lambda subject: not _equal(read(subject), wanted, token.text)
        case "~":
            return lambda subject: _contains(read(subject), token.text)
        case "!~":
            return lambda subject: not _contains(read(subject), token.text)
        case _:
            return lambda subject: _ordered(read(subject), operator, wanted, token.text)


def _literal(token: _Token) -> Json:
    """A word as JSON would have it: a number, true, false; anything else, and all in quotes, is text."""
    if token.kind == "text":
        return token.text
    if _NUMBER.fullmatch(token.text):
        return float(token.text) if set(token.text) & set(".eE") else int(token.text)
    return {"true": True, "false": False}.get(token.text, token.text)


def _equal(value: _Value, wanted: Json, text: str) -> bool:
    if isinstance(value, bytes):
        return value == text.encode()
    if isinstance(value, bool) or isinstance(wanted, bool):
        return isinstance(value, bool) and isinstance(wanted, bool) and value == wanted
    return not isinstance(value, Missing) and (value == wanted or (isinstance(value, str) and value == text))


def _contains(value: _Value, text: str) -> bool:
    if isinstance(value, bytes):
        return text.encode() in value
    if isinstance(value, str):
        return text in value
    return isinstance(value, list) and any(text == each for each in value)


def _ordered(value: _Value, operator: str, wanted: Json, text: str) -> bool:
    if isinstance(value, bytes):
        try:
            value = value.decode()
        except UnicodeDecodeError:
            return False
        if isinstance(wanted, int | float) and _NUMBER.fullmatch(value):
            return _holds(float(value), operator, wanted)
        return isinstance(wanted, str) and _holds(value, operator, text)
    if isinstance(value, bool) or isinstance(wanted, bool):
        return False
    if isinstance(value, int | float) and isinstance(wanted, int | float):
        return _holds(value, operator, wanted)
    return isinstance(value, str) and isinstance(wanted, str) and _holds(value, operator, wanted)


def _holds(left: float | str, operator: str, right: float | str) -> bool:
    if isinstance(left, str) or isinstance(right, str):
        order = (str(left) > str(right)) - (str(left) < str(right))
    else:
        order = (left > right) - (left < right)
    return {"<": order < 0, "<=": order <= 0, ">": order > 0, ">=": order >= 0}[operator]
