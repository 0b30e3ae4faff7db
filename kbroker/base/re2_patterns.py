"""Regular expressions of RE2: refused if RE2 does not know them, and matched in time that is linear in the text.

Kafka takes RE2's syntax, by its RE2/J: no look-around and no back-references. Python's ``re`` has other rules, and may
take for ever. Here it is RE2 itself, by one of two packages, which share the name of their module: ``google-re2``, or
``pyre2`` for Pythons that the first has no wheel for. Either is imported with the first pattern: a node without starts
without.
"""

from __future__ import annotations

import re
from types import ModuleType
from typing import Protocol


class Re2Pattern(Protocol):
    """A pattern, compiled."""

    def fullmatch(self, text: bytes) -> object | None:
        """Something if all of the text matches."""

    def search(self, text: bytes) -> object | None:
        """Something if a part of the text matches."""


class Re2Error(ValueError):
    """RE2 does not take the pattern; its reason in RE2's words, such as ``missing ): a(``."""


def compile_re2(pattern: str) -> Re2Pattern:
    """Compile a pattern in RE2's syntax; `Re2Error` for one that it does not know."""
    import re2

    encoded = pattern.encode(errors="surrogatepass")
    if not hasattr(re2, "Options"):
        return _Pyre2(re2, encoded)
    options = re2.Options()
    options.log_errors = False
    try:
        compiled: Re2Pattern = re2.compile(encoded, options)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        raise Re2Error(reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)) from None
    return compiled


class _Pyre2:
    """A pattern of ``pyre2``, without its way out to ``re``, and with ASCII classes, as RE2 itself has them.

    Its RE2 is older: it refuses ``(?<name>...)``, which is ``(?P<name>...)``.
    """

    def __init__(self, re2: ModuleType, pattern: bytes) -> None:
        if re.search(rb"(?<!\\)(?:\\\\)*\\\Z", pattern):
            raise Re2Error("trailing \\")  # the package lets it pass
        re2.set_fallback_notification(re2.FALLBACK_EXCEPTION)
        try:
            self._compiled = re2.compile(pattern.decode(errors="replace"), re2.ASCII)
        except (re2.error, ValueError) as error:
            raise Re2Error(_PYRE2_WORDS.get(str(error), str(error))) from None

    def fullmatch(self, text: bytes) -> object | None:
        return self._compiled.fullmatch(text.decode(errors="replace"))  # type: ignore[no-any-return]

    def search(self, text: bytes) -> object | None:
        return self._compiled.search(text.decode(errors="replace"))  # type: ignore[no-any-return]


_PYRE2_WORDS = {
    "Backreferences not supported": "invalid escape sequence",
    "unexpected end of regular expression": "missing ]",
}
"""RE2's words by those of the package, where it finds the error itself."""
