"""Errors in bytes: the peer's (``WireError``) and ours (``EncodeError``)."""

from __future__ import annotations


class WireError(Exception):
    """The peer's bytes are wrong; the connection that they came over is to be closed.

    Decoders raise nothing else, whatever they are fed.
    """


class FrameTooLarge(WireError):
    """A frame declares more bytes than the listener allows."""


class UnknownApi(WireError):
    """A request names an API key that does not exist or is not served here."""


class NotKafka(WireError):
    """The peer speaks another protocol (TLS on a plaintext port, HTTP); the text says which."""


class EncodeError(ValueError):
    """A message of ours cannot be expressed in the version asked for: a bug of the caller."""
