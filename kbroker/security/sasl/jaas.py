"""Lines of ``sasl.jaas.config``: a login module, a control flag and options, as in JAAS's files.

Kafka loads the class that such a line names. Nothing is loaded here: modules are a closed list, and stand for what they
do in Kafka. Words, quotes, escapes and comments are those of Java's ``StreamTokenizer`` as ``JaasConfig`` sets it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import Enum
from itertools import takewhile


class JaasError(ValueError):
    """The text is no line of JAAS. The message says why and has no part of it but names of modules and flags."""


class LoginModule(Enum):
    """The login modules that a line may name."""

    PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
    SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
    OAUTHBEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    KERBEROS = "com.sun.security.auth.module.Krb5LoginModule"


@dataclass(frozen=True, slots=True)
class JaasEntry:
    """One login module with its options. They are secret, so no text shows them."""

    module: LoginModule
    options: Mapping[str, str] = field(repr=False)

    def required(self, name: str) -> str:
        """An option that must be there; :class:`JaasError` if it is not."""
        value = self.options.get(name)
        if not value:
            raise JaasError(f"{self.module.value} needs the option {name}")
        return value


SUPPORTED = (LoginModule.PLAIN, LoginModule.SCRAM, LoginModule.OAUTHBEARER, LoginModule.KERBEROS)
"""Those by which one can log in here; the others are known by name."""

KERBEROS_FORM = (
    f"{LoginModule.KERBEROS.value} required useKeyTab=true storeKey=true"
    ' keyTab="/etc/kafka/kafka.keytab" principal="kafka/host.example.com@EXAMPLE.COM";'
)
"""Such a line, for messages."""

_FLAGS = ("REQUIRED", "REQUISITE", "SUFFICIENT", "OPTIONAL")
_CLOSE = 0.85
"""The likeness (`difflib`) of another word to one of JAAS from which it is taken for it, misspelt, and shown."""

_LETTER = "A-Za-z_$\u00a0-\U0010ffff"
_WORD = re.compile(rf"[{_LETTER}][{_LETTER}0-9.\-]*")
_SKIPPED = re.compile(r"(?:[\x00-\x20]+|//[^\r\n]*|/\*.*?\*/)+", re.DOTALL)
_QUOTED = re.compile(r'"((?:[^"\\\r\n]|\\[^\r\n])*)"|' + r"'((?:[^'\\\r\n]|\\[^\r\n])*)'")
_ESCAPE = re.compile(r"\\([0-3]?[0-7]{1,2}|.)")
_LETTERS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_OCTAL = frozenset("01234567")


def _unescape(match: re.Match[str]) -> str:
    text = match[1]
    return chr(int(text, 8)) if text[0] in _OCTAL else _LETTERS.get(text, text)


def _tokens(text: str) -> Iterator[tuple[str, bool]]:
    """The tokens of a text, and of each whether it is a word or a quoted string."""
    at = 0
    while True:
        skipped = _SKIPPED.match(text, at)
        if skipped is not None:
            at = skipped.end()
        if at == len(text):
            return
        if text[at] in "\"'":
            quoted = _QUOTED.match(text, at)
            if quoted is None:
                raise JaasError("a quoted string does not end on its line")
            at = quoted.end()
            inner = quoted[1] if quoted[1] is not None else quoted[2]
            yield _ESCAPE.sub(_unescape, inner), True
            continue
        word = _WORD.match(text, at)
        if word is not None:
            at = word.end()
            yield word[0], True
        else:
            at += 1
            yield text[at - 1], False


def parse_jaas(text: str) -> JaasEntry:
    """The one entry of a value of ``sasl.jaas.config``. :class:`JaasError` for anything else, and other modules."""
    entries = list(_entries(_tokens(text)))
    if not entries:
        raise JaasError("no login module is specified")
    if len(entries) > 1:
        raise JaasError(f"there are {len(entries)} login modules, and there should be 1")
    return entries[0]


def jaas_line(module: LoginModule, options: Mapping[str, str]) -> str:
    """Returns a value of ``sasl.jaas.config``."""
    words = [module.value, "required"]
    for name, value in options.items():
        quoted = value.replace("\\", "\\\\").replace('"', '\\"')
        words.append(f'{name}="{quoted}"')
    return f"{' '.join(words)};"


def parse_jaas_file(text: str, wanted: Callable[[str], bool]) -> dict[str, list[JaasEntry]]:
    """Returns the entries of each ``wanted`` context of a JAAS file: ``KafkaServer { module flag options; };``.

    Other contexts may have modules that are not known here. `JaasError` for a text that is no such file.
    """
    found: dict[str, list[JaasEntry]] = {}
    tokens = _tokens(text)
    for name, _ in tokens:
        if next(tokens, None) != ("{", False):
            raise JaasError("a context is of the form NAME { MODULE FLAG OPTIONS; };")
        inner = list(takewhile(lambda token: token != ("}", False), tokens))
        if next(tokens, None) != (";", False):
            raise JaasError(f"the context {name} does not end with }};")
        if wanted(name):
            found[name] = list(_entries(iter(inner)))
    return found


def _entries(tokens: Iterator[tuple[str, bool]]) -> Iterator[JaasEntry]:
    for number, (name, _) in enumerate(tokens):
        try:
            module = LoginModule(name)
        except ValueError:
            # A name that is no class may be a part of somebody's password.
            shown = name if re.fullmatch(r"(\w+\.)+\w*LoginModule", name) else "it"
            meant = _meant(name)
            if meant is not None:
                raise JaasError(f"{name} is not a login module; did you mean {meant}?") from None
            if number and shown == "it":
                raise JaasError("a semicolon ends the login module, and more follows it") from None
            known = ", ".join(entry.value for entry in SUPPORTED)
            raise JaasError(f"{shown} is not one of the login modules {known}") from None
        flag, _ = next(tokens, ("", False))
        if flag.upper() not in _FLAGS:
            close = get_close_matches(flag.upper(), _FLAGS, 1, _CLOSE)
            told = f", not {flag}" if close else ""
            raise JaasError(f"{name} must be followed by its control flag, one of {', '.join(_FLAGS).lower()}{told}")
        yield JaasEntry(module, dict(_options(tokens)))


def _meant(name: str) -> str | None:
    """The login module that a name is meant for, if it is so close to it that it cannot be a part of a password."""
    last = name.rpartition(".")[2]
    names = {module.value.rpartition(".")[2]: module.value for module in SUPPORTED}
    closest = get_close_matches(last, names, 1, _CLOSE)
    if not closest:
        # Java has modules beside that of Kerberos whose whole names are like its.
        names = {module.value: module.value for module in SUPPORTED if module is not LoginModule.KERBEROS}
        closest = get_close_matches(name, names, 1, _CLOSE)
    return names[closest[0]] if closest else None


def _options(tokens: Iterator[tuple[str, bool]]) -> Iterator[tuple[str, str]]:
    for key, is_word in tokens:
        if (key, is_word) == (";", False):
            return
        equals = next(tokens, None)
        value, value_is_word = next(tokens, ("", False))
        if not is_word or equals != ("=", False) or not value_is_word:
            raise JaasError('options are of the form name="value", and the last is followed by a semicolon')
        yield key, value
    raise JaasError("the entry is not terminated by a semicolon")
