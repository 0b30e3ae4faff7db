"""Properties of authorization and delegation tokens."""

from __future__ import annotations

from kbroker.config.definition import ConfigKey

KEYS: list[ConfigKey] = []
