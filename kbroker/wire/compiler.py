"""Codecs for declared messages: Python source generated per (class, version), compiled on first use.

The code is what one would write by hand: nested structs inline, adjacent fixed-width fields (and the first
byte of whatever follows them) in one ``Struct.unpack_from`` or ``pack``, varints of one byte without a
call. ``decoder_source`` and ``encoder_source`` write it; ``source_of`` shows it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, TypeVar

from kbroker.types import Part
from kbroker.wire.decoder_source import DecoderSource
from kbroker.wire.encoder_source import EncoderSource
from kbroker.wire.errors import EncodeError, WireError
from kbroker.wire.primitives import Buffer

M = TypeVar("M")

_Decoder = Callable[[Buffer, int], tuple[Any, int]]
_Encoder = Callable[[Any], list[Part]]

_MALFORMED = (struct.error, IndexError)


def decode(cls: type[M], version: int, buffer: Buffer, offset: int = 0) -> tuple[M, int]:
    """Decode one message that starts at ``offset``; returns it and the offset after it.

    ``Records`` fields are views into ``buffer``; all else is copied. ``WireError`` if the bytes are not a
    message of that version; ``KeyError`` if ``cls`` has no such version.
    """
    decoder = cls.__decoders__.get(version)  # type: ignore[attr-defined]
    if decoder is None:
        decoder = compile_decoder(cls, version)
    try:
        return decoder(buffer, offset)  # type: ignore[no-any-return]
    except _MALFORMED as error:
        raise WireError(f"{cls.__name__} v{version}: {error}") from None


def encode(message: Any, version: int) -> bytes:
    """Encode a message, records included, into one ``bytes``.

    ``EncodeError`` if a value does not fit its type, or the version cannot carry it. ``KeyError`` if the
    class has no such version.
    """
    try:
        return b"".join(encode_parts(message, version))  # type: ignore[arg-type]
    except TypeError as error:
        raise EncodeError(f"{type(message).__name__} v{version}: {error}") from error


def encode_parts(message: Any, version: int) -> list[Part]:
    """Encode a message into parts for the socket: each ``Records`` value is passed through as it is.

    The first part is always ``bytes``. Errors as ``encode``.
    """
    cls = type(message)
    encoder = cls.__encoders__.get(version)
    if encoder is None:
        encoder = compile_encoder(cls, version)
    try:
        return encoder(message)  # type: ignore[no-any-return]
    except (struct.error, AttributeError, TypeError, UnicodeEncodeError, OverflowError) as error:
        raise EncodeError(f"{cls.__name__} v{version}: {error}") from error


def compile_decoder(cls: type[Any], version: int) -> _Decoder:
    """Compile the decoder of one version and remember it; ``KeyError`` if there is no such version."""
    generator = DecoderSource(cls, version)
    decoder: _Decoder = generator.compile()
    cls.__decoders__[version] = decoder
    return decoder


def compile_encoder(cls: type[Any], version: int) -> _Encoder:
    """Compile the encoder of one version and remember it; ``KeyError`` if there is no such version."""
    generator = EncoderSource(cls, version)
    encoder: _Encoder = generator.compile()
    cls.__encoders__[version] = encoder
    return encoder


def source_of(cls: type[Any], version: int) -> tuple[str, str]:
    """The Python source of decoder and encoder, for people."""
    return DecoderSource(cls, version).source(), EncoderSource(cls, version).source()
