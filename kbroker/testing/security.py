"""Security of a broker in a test: certificates and users that live as long as it does, and how clients come in."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from kbroker.security.protocol import SecurityProtocol
from kbroker.testing.access import MECHANISMS, ClientAccess
from kbroker.tools.cli.certificate_files import LOCAL_HOSTS, CertificateFiles
from kbroker.tools.cli.secure_setup import AUTHORIZER, login_line, pem_stores

if TYPE_CHECKING:
    from kbroker.client.security import ClientSecurity

Protocol = Literal["ssl", "sasl_plaintext", "sasl_ssl"]
"""The security of the broker's listener."""

DEFAULT_USERS = {"admin": "admin-secret", "alice": "alice-secret"}

_OWN_USER = "kbroker-testing"


class BrokerSecurity:
    """The files of a secure listener, in a temporary directory.

    ``users`` are names and passwords, of listeners with SASL. With ``super_users`` there is an authorizer, and all
    others may do what ACLs allow. ``ValueError`` if these do not go together.
    """

    def __init__(
        self, protocol: Protocol, users: Mapping[str, str] | None = None, super_users: Sequence[str] | None = None
    ) -> None:
        self.protocol = SecurityProtocol[protocol.upper()]
        if users is not None and not self.protocol.has_sasl:
            raise ValueError("security='ssl' has no users with passwords: clients are known by their certificates")
        self.users = dict(DEFAULT_USERS if users is None else users) if self.protocol.has_sasl else {}
        self._super_users = super_users
        if unknown := [user for user in super_users or () if self.protocol.has_sasl and user not in self.users]:
            raise ValueError(f"{unknown[0]} is one of super_users and not one of users")
        self._own_password = secrets.token_urlsafe(16)
        self._token_key = secrets.token_urlsafe(32)
        self._directory = Path(tempfile.mkdtemp(prefix="kbroker-security-"))
        self._certificates: CertificateFiles | None = None
        try:
            if self.protocol.has_tls:
                self._certificates = CertificateFiles(self._directory)
        except BaseException:
            self.remove()
            raise

    @property
    def own_login(self) -> tuple[str, str] | None:
        """The user and password by which the broker reaches itself; None on a listener without SASL."""
        return (_OWN_USER, self._own_password) if self.protocol.has_sasl else None

    @property
    def ca_file(self) -> Path:
        """The certificate that clients trust, in PEM; ``ValueError`` on a listener without TLS."""
        return self._tls().ca_file

    def certificate(self, name: str) -> Path:
        """A key and a certificate for ``CN=name``, in one file of PEM; ``ValueError`` on a listener without TLS."""
        return self._tls().issue(name, LOCAL_HOSTS)[0]

    def _tls(self) -> CertificateFiles:
        if self._certificates is None:
            raise ValueError(f"a listener of {self.protocol.name} has no certificates")
        return self._certificates

    def properties(self, port: int) -> dict[str, str]:
        """The node's."""
        name = self.protocol.name
        found = {
            "listeners": f"{name}://127.0.0.1:{port}",
            "inter.broker.listener.name": name,
            "listener.security.protocol.map": f"{name}:{name},CONTROLLER:PLAINTEXT",  # the node's talk with itself
        }
        if self.protocol.has_tls:
            found |= pem_stores(self.ca_file, self.certificate("localhost"))
        if self.protocol.has_sasl:
            passwords = {f"user_{user}": password for user, password in self.users.items()}
            own = {"username": _OWN_USER, "password": self._own_password, f"user_{_OWN_USER}": self._own_password}
            found |= {
                "sasl.enabled.mechanisms": ",".join(MECHANISMS),
                "sasl.mechanism.inter.broker.protocol": "PLAIN",
                "delegation.token.secret.key": self._token_key,
                f"listener.name.{name.lower()}.plain.sasl.jaas.config": login_line("PLAIN", own | passwords),
            }
        if self._super_users is not None:
            # Without SASL the node comes to itself as whoever its certificate names.
            kind, own_user = ("User:", _OWN_USER) if self.protocol.has_sasl else ("User:CN=", "localhost")
            found["authorizer.class.name"] = AUTHORIZER
            found["super.users"] = ";".join(f"{kind}{user}" for user in (own_user, *self._super_users))
            if not self.protocol.has_sasl:
                found["ssl.client.auth"] = "requested"
        return found

    def add_users(self, bootstrap: str) -> None:
        """Give the users their passwords for SCRAM; those for PLAIN are in the properties."""
        if not self.protocol.has_sasl:
            return
        from kbroker.client import Client
        from kbroker.client.users import set_password
        from kbroker.security.sasl.scram import MIN_ITERATIONS, ScramMechanism

        with Client(bootstrap, security=self.own_security()) as client:
            for user, password in self.users.items():
                set_password(client, user, password, ScramMechanism, MIN_ITERATIONS)

    def own_security(self) -> ClientSecurity | None:
        """The way in of the broker itself, who may do everything."""
        from kbroker.client.properties import ClientProperties
        from kbroker.client.security import security_of

        ca_file = self.ca_file if self.protocol.has_tls else None
        if self.protocol.has_sasl:
            own = ClientAccess(self.protocol, ca_file, None, _OWN_USER, self._own_password, "PLAIN")
        else:
            own = ClientAccess(self.protocol, ca_file, self.certificate("localhost"))
        return security_of(ClientProperties(own.kafka()))

    def access(self, user: str | None, mechanism: str) -> ClientAccess:
        """The way in for one user; on a listener of SSL, for whoever shows the certificate ``CN=user``."""
        ca_file = self.ca_file if self.protocol.has_tls else None
        if not self.protocol.has_sasl:
            return ClientAccess(self.protocol, ca_file, None if user is None else self.certificate(user))
        name = next(iter(self.users)) if user is None else user
        if name not in self.users:
            raise ValueError(f"{name} is not one of the users {', '.join(self.users)}")
        return ClientAccess(self.protocol, ca_file, None, name, self.users[name], mechanism)

    def remove(self) -> None:
        """Remove the directory."""
        shutil.rmtree(self._directory, ignore_errors=True)
