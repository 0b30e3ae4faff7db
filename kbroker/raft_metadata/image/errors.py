"""The error of a record that does not fit the image."""

from __future__ import annotations


class MetadataReplayError(Exception):
    """A record that cannot follow from the state before it: the log is damaged or its writer had a bug."""
