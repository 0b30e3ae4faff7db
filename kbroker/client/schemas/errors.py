"""Errors of decoding by schemas; the text of each is one line for a person."""

from __future__ import annotations

from kbroker.errors import FatalError


class UndecodableRecord(Exception):
    """One key or value cannot be decoded: its schema is not there or is unusable, or its bytes do not fit it."""


class RegistryError(FatalError):
    """The registry cannot be asked at all, so nothing can be decoded."""


class PackageMissing(FatalError):
    """A package of ``kbroker[schemas]`` is not installed."""

    def __init__(self, what: str, package: str) -> None:
        super().__init__(f"{what} needs the package {package}: pip install 'kbroker[schemas]'")
