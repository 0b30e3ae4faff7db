"""The parts of a secure cluster on one machine besides its nodes: certificates, users, and what clients need.

It is made once in a directory and found there again. Only its owner can read the files with secrets.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kbroker.config import read_properties_file
from kbroker.config.properties_file import format_properties
from kbroker.errors import FatalError
from kbroker.security.sasl.jaas import LoginModule, jaas_line
from kbroker.tools.cli.certificate_files import LOCAL_HOSTS, CertificateFiles, write_secret
from kbroker.tools.cli.data_owners import PASSWORDS

if TYPE_CHECKING:
    from kbroker.client import Client
    from kbroker.client.security import ClientSecurity
    from kbroker.wire.records.metadata import UserScramCredentialRecord

PROTOCOL: Final = "SASL_SSL"
"""Of every listener, and the name of that of clients and brokers."""

MECHANISM: Final = "SCRAM-SHA-512"
BROKER: Final = "broker"
"""The nodes' own user, a super user."""
ADMIN: Final = "admin"
"""The super user for people."""
CLIENT: Final = "client"
"""The user for programs: it may use all topics, groups and transactional ids, and may not administer the cluster."""

AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
"""Kafka's own."""

_TOKEN_KEY_FILE: Final = "delegation-tokens.key"
_TO_GRANT_FILE: Final = "rights-to-grant"
_RENEW_BEFORE: Final = timedelta(days=30)


def login_line(mechanism: str, options: Mapping[str, str]) -> str:
    """A value of ``sasl.jaas.config`` for PLAIN or SCRAM."""
    return jaas_line(LoginModule.PLAIN if mechanism == "PLAIN" else LoginModule.SCRAM, options)


def pem_stores(ca_file: Path, key_file: Path | None = None) -> dict[str, str]:
    """The properties of stores in PEM: a trust store, and a key store if there is one."""
    found = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(ca_file.absolute())}
    if key_file is not None:
        found |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(key_file.absolute())}
    return found


def scram_records(users: Mapping[str, str], mechanisms: Sequence[str]) -> list[UserScramCredentialRecord]:
    """Users with their passwords, as records that a metadata log begins with."""
    from kbroker.raft_metadata.controller.scram import credential_record
    from kbroker.security.sasl.scram import ScramCredential, ScramMechanism

    return [
        credential_record(user, mechanism, ScramCredential.from_password(mechanism, password))
        for user, password in users.items()
        for mechanism in map(ScramMechanism.of_name, mechanisms)
        if mechanism is not None
    ]


class SecureSetup:
    """Certificates and users of a cluster whose nodes are on this machine; made if the directory has none.

    :class:`FatalError` if a file cannot be read or written.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._certificates = CertificateFiles(directory)
        self.passwords = self._read_passwords()
        """User -> password."""

    def _read_passwords(self) -> dict[str, str]:
        path = self.directory / PASSWORDS
        if path.exists():
            found = read_properties_file(path)
            if missing := [user for user in (BROKER, ADMIN, CLIENT) if not found.get(user)]:
                raise FatalError(f"{path}: there is no password of {missing[0]}")
            return found
        found = {user: secrets.token_urlsafe(24) for user in (BROKER, ADMIN, CLIENT)}
        write_secret(self.directory / _TO_GRANT_FILE, "")
        write_secret(path, format_properties(found, "Users of the cluster, as they were when it was made."))
        return found

    def _token_key(self) -> str:
        """The key of delegation tokens; made if the directory has none."""
        path = self.directory / _TOKEN_KEY_FILE
        if not path.exists():
            write_secret(path, secrets.token_urlsafe(32) + "\n")
        try:
            return path.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise FatalError(f"cannot read {path}: {getattr(error, 'strerror', None) or 'it is no text'}") from None

    @property
    def ca_file(self) -> Path:
        """The certificate that nodes and clients trust."""
        return self._certificates.ca_file

    def node_properties(self, node_id: int) -> dict[str, str]:
        """The properties of security of one node; its certificate is made anew in time."""
        name = f"node-{node_id}"
        key_file, is_new = self._certificates.issue(name, LOCAL_HOSTS)
        if not is_new and self._certificates.expiry(key_file) < datetime.now(UTC) + _RENEW_BEFORE:
            self._certificates.issue(name, LOCAL_HOSTS, renew=True)
        login = login_line(MECHANISM, {"username": BROKER, "password": self.passwords[BROKER]})
        return {
            "listener.security.protocol.map": f"{PROTOCOL}:{PROTOCOL},CONTROLLER:{PROTOCOL}",
            "inter.broker.listener.name": PROTOCOL,
            "sasl.enabled.mechanisms": MECHANISM,
            "sasl.mechanism.inter.broker.protocol": MECHANISM,
            "sasl.mechanism.controller.protocol": MECHANISM,
            f"listener.name.{PROTOCOL.lower()}.{MECHANISM.lower()}.sasl.jaas.config": login,
            f"listener.name.controller.{MECHANISM.lower()}.sasl.jaas.config": login,
            **pem_stores(self.ca_file, key_file),
            "authorizer.class.name": AUTHORIZER,
            "super.users": f"User:{BROKER};User:{ADMIN}",
            "delegation.token.secret.key": self._token_key(),
        }

    def records(self) -> list[UserScramCredentialRecord]:
        """The users, as records that the metadata log begins with."""
        return scram_records(self.passwords, [MECHANISM])

    def client_file(self, user: str) -> Path:
        """The file with a user's client properties."""
        return self.directory / f"{user}.properties"

    def librdkafka_file(self, user: str) -> Path:
        """The file with a user's properties of librdkafka."""
        return self.directory / f"{user}.librdkafka.properties"

    def _librdkafka_properties(self, user: str, bootstrap: str) -> dict[str, str]:
        return {
            "bootstrap.servers": bootstrap,
            "security.protocol": PROTOCOL,
            "sasl.mechanism": MECHANISM,
            "sasl.username": user,
            "sasl.password": self.passwords[user],
            "ssl.ca.location": str(self.ca_file.absolute()),
        }

    def client_properties(self, user: str, bootstrap: str) -> dict[str, str]:
        """The client properties with which a user enters the cluster."""
        return {
            "bootstrap.servers": bootstrap,
            "security.protocol": PROTOCOL,
            "sasl.mechanism": MECHANISM,
            "sasl.jaas.config": login_line(MECHANISM, {"username": user, "password": self.passwords[user]}),
            **pem_stores(self.ca_file),
        }

    def write_client_files(self, bootstrap: str) -> None:
        """Write the client properties of ``admin`` and ``client``, as Java's clients have them and as librdkafka."""
        for user in (ADMIN, CLIENT):
            text = format_properties(self.client_properties(user, bootstrap), f"Properties of clients, user {user}.")
            write_secret(self.client_file(user), text)
            text = "".join(f"{name}={value}\n" for name, value in self._librdkafka_properties(user, bootstrap).items())
            write_secret(self.librdkafka_file(user), text)

    def admin(self) -> ClientSecurity:
        """The way in for the super user."""
        from kbroker.client.properties import ClientProperties
        from kbroker.client.security import ClientSecurity
        from kbroker.security.protocol import SecurityProtocol

        properties = ClientProperties(self.client_properties(ADMIN, ""), str(self.directory))
        return ClientSecurity(SecurityProtocol[PROTOCOL], properties)

    def grant(self, client: Client) -> None:
        """Give ``client`` its rights, once in the life of a cluster: whoever takes them away does so for good."""
        from kbroker.client.acls import create_acls
        from kbroker.security.authorizer.acls import Acl
        from kbroker.security.authorizer.types import WILDCARD, AclOperation, AclPermission, PatternType, ResourceType

        marker = self.directory / _TO_GRANT_FILE
        if not marker.exists():
            return
        acls = [
            Acl(kind, WILDCARD, PatternType.LITERAL, f"User:{CLIENT}", WILDCARD, AclOperation.ALL, AclPermission.ALLOW)
            for kind in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
        ]
        refused = create_acls(client, acls)
        if refused:
            raise refused[0][1]
        marker.unlink(missing_ok=True)
