"""Reads Java key stores of the type JKS.

All numbers are big-endian. Behind the magic number, the version and the count come entries: the tag 1 with a protected
key and its chain, or 2 with a trusted certificate; each begins with its alias and date. A SHA-1 digest of the password,
a fixed word and all that is before ends the file. A key is protected by a stream of SHA-1 digests of the password.
Its DER has Sun's own algorithm.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha1
from struct import Struct

MAGIC = b"\xfe\xed\xfe\xed"
JCEKS_MAGIC = b"\xce\xce\xce\xce"

_WORD = b"Mighty Aphrodite"
_DIGEST = 20
_INT = Struct(">i")
_SHORT = Struct(">H")
_SUN_KEY_PROTECTOR = bytes.fromhex("060a2b060104012a02110101")
"""The object identifier 1.3.6.1.4.1.42.2.17.1.1."""

_PRIVATE_KEY, _TRUSTED = 1, 2


@dataclass(frozen=True, slots=True, repr=False)
class ProtectedKey:
    """A private key as it is kept, and its certificates in DER, its own first."""

    alias: str
    protected: bytes
    chain: list[bytes]


@dataclass(slots=True, repr=False)
class JavaKeyStore:
    """The entries of a store."""

    keys: list[ProtectedKey] = field(default_factory=list)
    trusted: list[bytes] = field(default_factory=list)
    """Certificates in DER."""


class WrongPassword(ValueError):
    """The password is not that of the store or of the key, or the file is damaged."""


def read(data: bytes, password: str | None) -> JavaKeyStore:
    """The entries of a JKS file; :class:`WrongPassword`, or ``ValueError`` for what is none.

    Without a password the digest is not checked, as Java does it.
    """
    if data[:4] != MAGIC or len(data) < 12 + _DIGEST:
        raise ValueError("it is not a Java key store")
    if password is not None:
        digest = sha1(_utf16(password) + _WORD + data[:-_DIGEST]).digest()
        if not hmac.compare_digest(digest, data[-_DIGEST:]):
            raise WrongPassword("the password is wrong, or the file is damaged")
    store = JavaKeyStore()
    reader = _Reader(data[:-_DIGEST], 4)
    version = reader.number()
    if version not in (1, 2):
        raise ValueError(f"its version is {version}")
    for _ in range(reader.number()):
        tag, alias = reader.number(), reader.text()
        reader.take(8)  # the date
        if tag == _PRIVATE_KEY:
            protected = reader.block()
            store.keys.append(ProtectedKey(alias, protected, [reader.certificate(version) for _ in reader.counted()]))
        elif tag == _TRUSTED:
            store.trusted.append(reader.certificate(version))
        else:
            raise ValueError(f"it has an entry of the kind {tag}")
    return store


def unprotect(key: ProtectedKey, password: str) -> bytes:
    """A private key in DER (PKCS #8); :class:`WrongPassword`, or ``ValueError`` if it is protected otherwise."""
    at = key.protected.find(_SUN_KEY_PROTECTOR, 0, 32)
    if at < 0:
        raise ValueError("its key is protected in a way that is not JKS's")
    reader = _Reader(key.protected, at + len(_SUN_KEY_PROTECTOR))
    if reader.take(2) != b"\x05\x00":
        raise ValueError("its key is protected in a way that is not JKS's")
    body = reader.octets()
    salt, encrypted, check = body[:_DIGEST], body[_DIGEST:-_DIGEST], body[-_DIGEST:]
    secret = _utf16(password)
    stream = bytearray()
    digest = salt
    while len(stream) < len(encrypted):
        digest = sha1(secret + digest).digest()
        stream += digest
    plain = bytes(one ^ other for one, other in zip(encrypted, stream, strict=False))
    if not hmac.compare_digest(sha1(secret + plain).digest(), check):
        raise WrongPassword("the password of the key is wrong")
    return plain


def _utf16(password: str) -> bytes:
    return password.encode("utf-16-be")


class _Reader:
    """Takes values from bytes; ``ValueError`` when they end."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at

    def take(self, count: int) -> bytes:
        end = self._at + count
        if count < 0 or end > len(self._data):
            raise ValueError("it ends too early")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def number(self) -> int:
        return int(_INT.unpack(self.take(4))[0])

    def block(self) -> bytes:
        return self.take(self.number())

    def text(self) -> str:
        return self.take(_SHORT.unpack(self.take(2))[0]).decode("utf-8", "replace")

    def counted(self) -> Iterator[int]:
        return iter(range(self.number()))

    def certificate(self, version: int) -> bytes:
        kind = self.text() if version == 2 else "X.509"
        if kind != "X.509":
            raise ValueError(f"it has a certificate of the kind {kind}")
        return self.block()

    def octets(self) -> bytes:
        """A DER OCTET STRING."""
        if self.take(1) != b"\x04":
            raise ValueError("its key is no DER")
        length = self.take(1)[0]
        if length & 0x80:
            length = int.from_bytes(self.take(length & 0x7F), "big")
        return self.take(length)
