"""Secrets are taken out of texts: those that are known by a configuration, and what looks like one. Pure.

Values of properties are judged by their names (`kbroker.config.secret_names`, `kbroker.client.properties`); this is for
texts that may repeat such a value, as a log does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from kbroker.config.provided import HIDDEN, Provided
from kbroker.config.secret_names import SECRET_WORDS

_SHORTEST: Final = 4
"""A shorter value is not looked for in texts: it would be found everywhere. Its property is hidden all the same."""

_IN_LOGS: Final = ("passwd", "pwd", r"api[-_.]?key", r"access[-_.]?key", "hmac")
"""Words for secrets in texts of other programs."""

_WORDS: Final = "|".join([*(re.escape(word) for word in SECRET_WORDS if word != "jaas"), *_IN_LOGS])
_ASSIGNED: Final = re.compile(
    rf"""((?:{_WORDS}|user_)[\w.-]{{0,100}}["']?\s*[=:]\s*)("(?:[^"\\]|\\.)*"|'[^']*'|[^\s,;}}\])]+)""", re.IGNORECASE
)
"""``password=...`` and the like, in any program's words."""

_LOGIN: Final = re.compile(r"(LoginModule\s+\w+).*", re.DOTALL)
_BEARER: Final = re.compile(r"(\b(?:Bearer|Basic)\s+)[\w.~+/=-]+", re.IGNORECASE)
_IN_URL: Final = re.compile(r"(\b\w{1,30}://[^\s/:@]*:)[^\s/]+@")
_KEY: Final = re.compile(r"-----BEGIN [^-]*PRIVATE KEY-----.*?(?:-----END [^-]*-----|$)", re.DOTALL)
_OPTION: Final = re.compile(r'\b([\w.-]+)\s*=\s*"((?:[^"\\]|\\.)*)"')


class Secrets:
    """The values that must not be seen."""

    def __init__(self) -> None:
        self._values: set[str] = set()

    def add(self, properties: Mapping[str, str], is_secret: Callable[[str], bool]) -> None:
        """Take up the secret values of properties, and the options of logins in them."""
        for name, value in properties.items():
            if is_secret(name) or type(value) is Provided:
                self._values.add(value.strip())
                for option, text in _OPTION.findall(value):
                    if option != "username":
                        self._values |= {text, text.replace('\\"', '"').replace("\\\\", "\\")}

    def removed(self, text: str) -> str:
        """The text without them, and without what looks like one."""
        text = _KEY.sub(HIDDEN, self.without_known(text))
        return "\n".join(_line(line) for line in text.split("\n"))

    def without_known(self, text: str) -> str:
        """The text without them alone."""
        for value in sorted(self._values, key=len, reverse=True):
            if len(value) >= _SHORTEST:
                text = text.replace(value, HIDDEN)
        return text


def _line(line: str) -> str:
    line = _LOGIN.sub(rf"\1 {HIDDEN}", line)
    line = _IN_URL.sub(rf"\1{HIDDEN}@", line)
    line = _BEARER.sub(rf"\1{HIDDEN}", line)
    return _ASSIGNED.sub(rf"\1{HIDDEN}", line)


def hidden(properties: Mapping[str, str], is_secret: Callable[[str], bool]) -> dict[str, str]:
    """Properties whose secret values are replaced, and what looks like a secret in others, as in an address."""
    return {
        name: HIDDEN if is_secret(name) or type(value) is Provided else _line(value)
        for name, value in sorted(properties.items())
    }
