"""A directory with a certificate authority and the certificates that it has issued, each in a file for Kafka."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kbroker.config.config_key import InvalidConfig
from kbroker.errors import FatalError

if TYPE_CHECKING:
    from cryptography import x509

    from kbroker.security.tls.authority import Authority

CA_FILE: Final = "ca.pem"
CA_KEY_FILE: Final = "ca.key"
LOCAL_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
"""Names of this machine, for who has no network yet."""

_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9._-]")


def write_secret(path: Path, content: str | bytes) -> None:
    """Write a file that nobody but its owner may read; :class:`FatalError` if that cannot be.

    It is never there with half of its content, or for others to read.
    """
    data = content.encode() if isinstance(content, str) else content
    partial = path.with_name(f"{path.name}.partial")
    try:
        partial.unlink(missing_ok=True)
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
        partial.replace(path)
    except OSError as error:
        raise FatalError(f"cannot write {path}: {error.strerror}") from None


class CertificateFiles:
    """``ca.pem`` and ``ca.key``, and for each name ``NAME.pem``: a private key with its chain, as Kafka has PEM.

    What is there is kept; what is not is made. :class:`FatalError` if a file cannot be read or written.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.is_new = False
        """Whether the authority was made just now."""
        self._authority = self._open()

    @property
    def ca_file(self) -> Path:
        """The certificate that all have to trust."""
        return self.directory / CA_FILE

    def file_of(self, name: str) -> Path:
        """The file of a certificate, there or not."""
        return self.directory / f"{_NOT_IN_NAMES.sub('_', name)}.pem"

    def issue(
        self, name: str, hosts: Sequence[str] = (), *, days: float | None = None, renew: bool = False
    ) -> tuple[Path, bool]:
        """A certificate for ``CN=name`` and these hosts: its file, and whether it was made just now."""
        path = self.file_of(name)
        if path.name == CA_FILE:
            raise FatalError(f"{name!r} is the name of the authority's own file: take another")
        if path.exists() and not renew:
            self._check_kept(path, name, hosts)
            return path, False
        from kbroker.security.tls.authority import CERTIFICATE_DAYS

        subject = f"CN={_escaped(name)}"
        issued = self._authority.issue(subject, hosts, days=CERTIFICATE_DAYS if days is None else days)
        write_secret(path, issued.pem())
        return path, True

    def issued(self) -> tuple[list[tuple[str, list[str]]], list[Path]]:
        """Name and hosts of each certificate that this authority has issued; other ``.pem`` files of the directory."""
        from cryptography.exceptions import InvalidSignature

        ours: list[tuple[str, list[str]]] = []
        others: list[Path] = []
        for path in sorted(self.directory.glob("*.pem")):
            if path == self.ca_file:
                continue
            try:
                certificate = self._certificate(path)
                certificate.verify_directly_issued_by(self._authority.certificate)
                (name,) = _common_names(certificate)
            except (FatalError, ValueError, TypeError, InvalidSignature):
                others.append(path)
                continue
            if self.file_of(name) == path:
                ours.append((name, _hosts(certificate)))
            else:
                others.append(path)
        return ours, others

    def _check_kept(self, path: Path, name: str, hosts: Sequence[str]) -> None:
        """:class:`FatalError` if a certificate that is there is not the one that is wanted."""
        certificate = self._certificate(path)
        if _common_names(certificate) != [name]:
            raise FatalError(f"{path} is the certificate of another name than {name}: remove it, or take another name")
        known = {host.lower() for host in _hosts(certificate)}
        missing = [host for host in hosts if host.lower() not in known]
        if missing:
            raise FatalError(f"{path} is not for {', '.join(missing)}: --renew makes it anew")

    def write_pkcs12(self, path: Path, password: str) -> tuple[Path, Path]:
        """A PEM file as a key store of type PKCS12 beside it, and the authority's certificate as a trust store."""
        from cryptography import x509
        from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key, pkcs12

        try:
            pem = path.read_bytes()
            key = load_pem_private_key(pem, None)
            chain = x509.load_pem_x509_certificates(pem)
        except (OSError, ValueError, TypeError) as error:
            raise FatalError(f"cannot read {path}: {getattr(error, 'strerror', None) or 'no key and chain'}") from None
        encryption = BestAvailableEncryption(password.encode())
        store, trust = path.with_suffix(".p12"), self.directory / "ca.p12"
        content = pkcs12.serialize_key_and_certificates(b"key", key, chain[0], chain[1:], encryption)  # type: ignore[arg-type]
        write_secret(store, content)
        trusted = [pkcs12.PKCS12Certificate(self._authority.certificate, b"ca")]
        write_secret(trust, pkcs12.serialize_java_truststore(trusted, encryption))
        return store, trust

    def expiry(self, path: Path) -> datetime:
        """When the certificate in a file ends."""
        return self._certificate(path).not_valid_after_utc

    def _certificate(self, path: Path) -> x509.Certificate:
        from cryptography import x509

        try:
            return x509.load_pem_x509_certificates(path.read_bytes())[0]
        except (OSError, ValueError) as error:
            raise FatalError(f"cannot read {path}: {getattr(error, 'strerror', None) or 'no certificate'}") from None

    def _open(self) -> Authority:
        try:
            from kbroker.security.tls.authority import Authority
        except InvalidConfig as error:
            raise FatalError(error.message) from None
        except ImportError:
            raise FatalError("certificates need the package cryptography: pip install 'kbroker[tls]'") from None
        key_file = self.directory / CA_KEY_FILE
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            if self.ca_file.exists() or key_file.exists():
                return Authority.load(self.ca_file.read_text(), key_file.read_text())
        except ValueError as error:
            raise FatalError(f"{self.directory}: {error}") from None
        except OSError as error:
            raise FatalError(f"cannot read {error.filename or self.directory}: {error.strerror}") from None
        made = Authority.create()
        write_secret(key_file, made.key_pem())
        try:
            self.ca_file.write_text(made.certificate_pem)
        except OSError as error:
            raise FatalError(f"cannot write {self.ca_file}: {error.strerror}") from None
        self.is_new = True
        return made


def _common_names(certificate: x509.Certificate) -> list[str]:
    from cryptography.x509.oid import NameOID

    return [str(each.value) for each in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]


def _hosts(certificate: x509.Certificate) -> list[str]:
    """The names and addresses that a certificate is for."""
    from cryptography import x509

    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [str(entry.value) for entry in names]


def _escaped(name: str) -> str:
    """A value of a distinguished name, as RFC 4514 wants it."""
    text = re.sub(r'([,+"\\<>;=])', r"\\\1", name)
    if text.startswith(("#", " ")):
        text = f"\\{text}"
    return f"{text[:-1]}\\ " if text.endswith(" ") else text
