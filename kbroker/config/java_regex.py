"""Whether text is a regular expression of Java's (``java.util.regex.Pattern``): the grammar alone, nothing is matched.

The text is walked over once, with a count of what is open: no nesting is too deep, and none takes long.
"""

from __future__ import annotations

import re

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*")
_FLAGS = re.compile(r"[idmsuxU]*(?:-[idmsuxU]*)?([:)])")
_COUNT = re.compile(r"\{([0-9]+)(,([0-9]*))?\}")
_HEX = re.compile(r"x(?:[0-9A-Fa-f]{2}|\{([0-9A-Fa-f]+)\})|u[0-9A-Fa-f]{4}")
_OCTAL = re.compile(r"0[0-7]{1,3}")
_TO_QUOTE = re.compile(r"(?:[^\\]|\\[^Q])*?\\Q", re.DOTALL)
_PROPERTY = re.compile(r"[pP](?:\{([^}]+)\}|([A-Z]))")
_CLASS_LETTERS = frozenset("DHSVWdhsvw")
"""Escapes that stand for many characters."""
_LETTERS = _CLASS_LETTERS | frozenset("ABGRXZbz")
_CONTROLS = frozenset("aefnrt")
_MOST = 2**31 - 1

_CATEGORIES = re.compile(r"C[nfcos]|L[ultmo]|M[nec]|N[dlo]|Z[slp]|P[cdseoif]|S[mcko]")
_SHARED = re.compile(
    r"ASCII|Alnum|Alpha|Blank|Cntrl|Digit|Graph|Lower|Print|Punct|Space|Upper|XDigit|[LMNZCPS]|LC|LD|L1|all"
)
_PREFIXED = re.compile(r"(?:Is|In|java)[A-Z][A-Za-z0-9_ -]*")


class _Malformed(Exception):
    pass


def is_java_regex(text: str) -> bool:
    """Whether Java would compile it.

    Two things are not looked at: whether what ``\\p{Is...}`` names exists, and whether a look-behind is bounded.
    """
    try:
        _Walk(_unquoted(text)).run()
    except _Malformed:
        return False
    return True


def _unquoted(text: str) -> str:
    """The text with each ``\\Q...\\E`` made plain letters."""
    parts: list[str] = []
    position = 0
    while (found := _TO_QUOTE.match(text, position)) is not None:
        end = text.find("\\E", found.end())
        quoted = text[found.end() : len(text) if end < 0 else end]
        parts += [found[0][:-2], "q" * len(quoted)]
        position = len(text) if end < 0 else end + 2
    return "".join([*parts, text[position:]])


class _Walk:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.open = 0
        self.names: set[str] = set()

    def run(self) -> None:
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == "(":
                self._group()
                continue
            if char == ")":
                if not self.open:
                    raise _Malformed
                self.open -= 1
                self.at += 1
            elif char == "[":
                self._class()
            elif char == "\\":
                self._escape()
            elif char in "*+?":
                raise _Malformed
            elif char == "|":
                self.at += 1
                continue
            elif char != "{":
                self.at += 1
            self._quantifier()
        if self.open:
            raise _Malformed

    def _peek(self, count: int = 1) -> str:
        return self.text[self.at : self.at + count]

    def _take(self, pattern: re.Pattern[str]) -> re.Match[str]:
        found = pattern.match(self.text, self.at)
        if found is None:
            raise _Malformed
        self.at = found.end()
        return found

    def _quantifier(self) -> None:
        """Read a quantifier, if there is one here; a second one behind it has nothing to repeat."""
        char = self._peek()
        if char == "{":
            low, comma, high = self._take(_COUNT).groups()
            most = int(low) if not comma else int(high) if high else _MOST
            if len(low) > 12 or len(high or "") > 12 or not int(low) <= most <= _MOST:
                raise _Malformed
        elif char and char in "*+?":
            self.at += 1
        else:
            return
        if self._peek() and self._peek() in "?+":
            self.at += 1

    def _group(self) -> None:
        self.at += 1
        if self._peek() == "?":
            self.at += 1
            char = self._peek()
            if char and char in ":=!>":
                self.at += 1
            elif char == "<":
                self.at += 1
                if self._peek() and self._peek() in "=!":
                    self.at += 1
                else:
                    self._group_name()
            elif self._take(_FLAGS)[1] == ")":
                return
        self.open += 1

    def _group_name(self) -> None:
        name = self._take(_NAME)[0]
        if name in self.names or self._peek() != ">":
            raise _Malformed
        self.names.add(name)
        self.at += 1

    def _escape(self, *, in_class: bool = False) -> str | None:
        """Pass an escape; the one character that it stands for in a class, None if it stands for many."""
        self.at += 1
        char = self._peek()
        if not char:
            raise _Malformed
        if char in "pP":
            self._property()
            return None
        if char in "xu":
            return self._code_point(self._take(_HEX))
        if char == "0":
            return chr(int(self._octal(), 8))
        self.at += 1
        if char == "c":
            if not self._peek():
                raise _Malformed
            self.at += 1
            return chr(ord(self.text[self.at - 1]) ^ 64)
        if char == "k" and not in_class:
            self._reference()
            return None
        if char in _CLASS_LETTERS or (not in_class and (char in _LETTERS or char in "123456789")):
            return None
        if char in _CONTROLS:
            return {"a": "\a", "e": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}[char]
        if (char.isascii() and char.isalpha()) or char in "123456789":
            raise _Malformed
        return char

    def _octal(self) -> str:
        digits = self._take(_OCTAL)[0]
        if len(digits) == 4 and digits[1] > "3":
            self.at -= 1
            digits = digits[:3]
        return digits

    def _code_point(self, found: re.Match[str]) -> str:
        digits = found[1] or found[0][1:]
        if len(digits.lstrip("0")) > 6 or int(digits, 16) > 0x10FFFF:
            raise _Malformed
        return chr(int(digits, 16))

    def _property(self) -> None:
        name = self._take(_PROPERTY)
        text = name[1] or name[2]
        if not (_SHARED.fullmatch(text) or _PREFIXED.fullmatch(text) or _CATEGORIES.fullmatch(text.removeprefix("Is"))):
            raise _Malformed

    def _reference(self) -> None:
        if self._peek() != "<":
            raise _Malformed
        self.at += 1
        if self._take(_NAME)[0] not in self.names or self._peek() != ">":
            raise _Malformed
        self.at += 1

    def _class(self) -> None:
        """A class with the classes in it; ``filled`` says of each open one whether something stands in it."""
        filled = [False]
        self._open_class()
        while filled:
            char = self._peek()
            if not char:
                raise _Malformed
            if char == "[":
                self._open_class()
                filled.append(False)
            elif char == "]" and filled[-1]:
                self.at += 1
                filled.pop()
                if filled:
                    filled[-1] = True
            elif self._peek(2) == "&&":
                self._intersection(filled)
            else:
                self._range()
                filled[-1] = True

    def _open_class(self) -> None:
        self.at += 1
        if self._peek() == "^":
            self.at += 1

    def _intersection(self, filled: list[bool]) -> None:
        while self._peek() == "&":
            self.at += 1
        if self._peek() == "]" and not filled[-1]:
            raise _Malformed

    def _range(self) -> None:
        low = self._character()
        if self._peek() != "-" or low is None:
            return
        following = self.text[self.at + 1 : self.at + 2]
        if following in ("[", "]", ""):
            return
        self.at += 1
        high = self._character()
        if high is None or high < low:
            raise _Malformed

    def _character(self) -> str | None:
        if self._peek() == "\\":
            return self._escape(in_class=True)
        self.at += 1
        return self.text[self.at - 1]
