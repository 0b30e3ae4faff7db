"""Sentences that explain APIs and errors, from ``explanations.toml``."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import NamedTuple

from kbroker.errors import ErrorCode


class Explanation(NamedTuple):
    """A sentence, and the proposal behind it."""

    text: str
    kip: int
    """0 if there is none."""

    def __str__(self) -> str:
        return f"{self.text[:-1]} (KIP-{self.kip})." if self.kip else self.text


@cache
def _tables() -> tuple[dict[str, Explanation], dict[str, Explanation]]:
    data = tomllib.loads(Path(__file__).with_name("explanations.toml").read_text(encoding="utf-8"))
    apis, errors = (
        {name: Explanation(row["text"], row.get("kip", 0)) for name, row in data[kind].items()}
        for kind in ("api", "error")
    )
    return apis, errors


def explain_api(name: str) -> Explanation:
    """The API of that name; ``KeyError`` if there is none."""
    return _tables()[0][name]


def explain_error(code: ErrorCode) -> Explanation:
    """An error as an answer; ``KeyError`` for NONE."""
    return _tables()[1][code.name]
