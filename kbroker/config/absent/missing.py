"""Builders for the tables of absent properties."""

from __future__ import annotations

from kbroker.config.definition import ConfigKey


def missing(reason: str, *keys: ConfigKey) -> list[ConfigKey]:
    """``keys`` as properties without effect: kbroker does not have what they belong to, as ``reason`` says."""
    return [key._replace(no_effect=reason) for key in keys]
