"""The name of a certificate's owner, as Java writes it, and the principals' names that are made of it.

``X500Principal.getName()``, a form of RFC 2253: the last of the subject's parts comes first. The nine attributes of RFC
2253 have their short names; any other has its dotted number, and its value is the bytes in hexadecimal. A client's
principal is made of this text, so ACLs depend on each character of it. The certificate's bytes are read here
themselves: text types and unknown types must stay as the certificate has them.

Rules of ``ssl.principal.mapping.rules`` (KIP-371) are separated by commas. ``DEFAULT`` takes the name as it is.
``RULE:pattern/replacement/`` is for names that the pattern, a regular expression of Java's, matches in whole: each
match of it in the name is replaced; ``L`` or ``U`` at the end make the result lower or upper case. The first rule that
fits wins.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kbroker.config.config_key import InvalidConfig
from kbroker.security.java_patterns import compile_java, java_replacement

_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_TEXT_TAGS = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1C, 0x1E})
"""UTF8String, PrintableString, T61String, IA5String, GeneralString, UniversalString, BMPString."""

_SEQUENCE, _SET, _OID, _VERSION = 0x30, 0x31, 0x06, 0xA0
_ESCAPED = frozenset(',=+<>#;"\\')
_SPACES = " \r"


def subject_name(certificate: bytes) -> str:
    """The subject of a certificate in DER; empty if it has no parts. ``ValueError`` for what is no certificate."""
    try:
        return _subject_name(certificate)
    except (IndexError, StopIteration):
        raise ValueError("the certificate is damaged") from None


def _subject_name(certificate: bytes) -> str:
    fields = _items(_only(_only(certificate, _SEQUENCE), _SEQUENCE, more=True))
    tag, _, _ = next(fields)
    # With the version: serial number, algorithm, issuer and validity come before the subject.
    for _ in range(4 if tag == _VERSION else 3):
        next(fields)
    tag, subject, _ = next(fields)
    if tag != _SEQUENCE:
        raise ValueError("the certificate has no subject")
    parts = []
    for tag, part, _ in _items(subject):
        if tag != _SET:
            raise ValueError("the subject is damaged")
        parts.append("+".join(_attribute(attribute) for _, attribute, _ in _items(part)))
    return ",".join(reversed(parts))


def _attribute(data: bytes) -> str:
    (tag, oid, _), (kind, value, whole) = list(_items(data))[:2]
    if tag != _OID:
        raise ValueError("the subject is damaged")
    dotted = _dotted(oid)
    keyword = _KEYWORDS.get(dotted)
    if keyword is None or kind not in _TEXT_TAGS:
        return f"{keyword or dotted}=#{whole.hex()}"
    return f"{keyword}={_escaped(value.decode('utf-8', 'replace'))}"


def _escaped(value: str) -> str:
    text = "".join(f"\\{char}" if char in _ESCAPED else "\\00" if char == "\0" else char for char in value)
    kept = text.lstrip(_SPACES)
    before, text = text[: len(text) - len(kept)], kept
    kept = text.rstrip(_SPACES)
    after = text[len(kept) :]
    return "".join(f"\\{space}" for space in before) + kept + "".join(f"\\{space}" for space in after)


def _dotted(oid: bytes) -> str:
    numbers: list[int] = []
    number = 0
    for byte in oid:
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, [first, numbers[0] - 40 * first, *numbers[1:]]))


def _only(data: bytes, tag: int, *, more: bool = False) -> bytes:
    """The content of the DER value that ``data`` is, or begins with."""
    for found, content, whole in _items(data):
        if found == tag and (more or len(whole) == len(data)):
            return content
        break
    raise ValueError("it is no certificate")


def _items(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """DER values in a row: the tag, the content, and all of it."""
    at = 0
    while at < len(data):
        start = at
        if at + 2 > len(data):
            raise ValueError("a value ends too early")
        tag, length = data[at], data[at + 1]
        at += 2
        if length & 0x80:
            size = length & 0x7F
            length = int.from_bytes(data[at : at + size], "big")
            at += size
        end = at + length
        if end > len(data):
            raise ValueError("a value ends too early")
        yield tag, data[at:end], data[start:end]
        at = end


NAME = "ssl.principal.mapping.rules"

_PARTS = r"(?P<default>DEFAULT)|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?)"
_RULE = re.compile(_PARTS)
_SEPARATED = re.compile(rf"\s*((?:{_PARTS}).*?|.*?)\s*(?:,\s*|$)", re.DOTALL)


class NoMatchingRule(ValueError):
    """No rule fits a name."""


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: re.Pattern[str]
    replacement: Callable[[re.Match[str]], str]
    case: Callable[[str], str]

    def apply(self, name: str) -> str | None:
        if self.pattern.fullmatch(name) is None:
            return None
        return self.case(self.pattern.sub(self.replacement, name))


class MappingRules:
    """The rules of one listener."""

    def __init__(self, text: str) -> None:
        """:class:`InvalidConfig` if they are not rules."""
        self._rules: list[_Rule | None] = []  # None stands for DEFAULT
        for found in _SEPARATED.finditer(text.strip()):
            if found[1]:
                self._rules.append(_parse(found[1]))

    def name(self, distinguished_name: str) -> str:
        """The principal's name for a name as in RFC 2253; :class:`NoMatchingRule`."""
        for rule in self._rules:
            result = distinguished_name if rule is None else rule.apply(distinguished_name)
            if result is not None:
                return result
        raise NoMatchingRule(f"no rule of {NAME} fits {distinguished_name}")


def _parse(text: str) -> _Rule | None:
    found = _RULE.match(text)
    if found is None or found.end() != len(text):
        raise InvalidConfig(f"{NAME}: {text!r} is neither DEFAULT nor of the form RULE:pattern/replacement/[LU]")
    if found["default"]:
        return None
    pattern = found["pattern"]
    try:
        compiled = compile_java(pattern)
        replacement = java_replacement(found["replacement"], compiled)
    except ValueError as error:
        raise InvalidConfig(f"{NAME}: {error}") from None
    case = {"L": str.lower, "U": str.upper}.get(found["case"], str)
    return _Rule(compiled, replacement, case)
