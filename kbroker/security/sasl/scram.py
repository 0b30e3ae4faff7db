"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677): both sides prove that they know of a password.

Passwords and names are UTF-8 as they are, without SASLprep, as in Kafka (``ScramFormatter``).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import math
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from kbroker.security.principal import KafkaPrincipal
from kbroker.security.sasl.mechanism import SaslAuthenticationError, SaslError

MIN_ITERATIONS = 4096
MAX_ITERATIONS = 16384
"""Limits of a credential (Kafka's ``ScramMechanism`` and ``ScramControlManager``)."""

CLIENT_MAX_ITERATIONS = 1 << 20
"""A server that asks a client for more wants its time, not its password."""

_SALT_BYTES = 20


class ScramMechanism(IntEnum):
    """Under the ids that requests and records have."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def mechanism_name(self) -> str:
        """The name in SASL: ``SCRAM-SHA-256``."""
        return self.name.replace("_", "-")

    @property
    def hash_name(self) -> str:
        """The name in hashlib."""
        return "sha256" if self is ScramMechanism.SCRAM_SHA_256 else "sha512"

    @staticmethod
    def of_name(name: str) -> ScramMechanism | None:
        """The mechanism of a name of SASL's, or None."""
        return next((mechanism for mechanism in ScramMechanism if mechanism.mechanism_name == name), None)

    def salted_password(self, password: str, salt: bytes, iterations: int) -> bytes:
        """``Hi`` of the RFC."""
        return hashlib.pbkdf2_hmac(self.hash_name, password.encode(), salt, iterations)

    def hmac(self, key: bytes, message: bytes) -> bytes:
        """``HMAC`` of the RFC."""
        return hmac.digest(key, message, self.hash_name)

    def hash(self, data: bytes) -> bytes:
        """``H`` of the RFC."""
        return hashlib.new(self.hash_name, data).digest()


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """A user's credential: a server keeps it instead of the password. The keys are shown by no text."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int

    @classmethod
    def from_salted(
        cls, mechanism: ScramMechanism, salted_password: bytes, salt: bytes, iterations: int
    ) -> ScramCredential:
        """The credential of a salted password, as AlterUserScramCredentials has it."""
        stored_key = mechanism.hash(mechanism.hmac(salted_password, b"Client Key"))
        return cls(salt, stored_key, mechanism.hmac(salted_password, b"Server Key"), iterations)

    @classmethod
    def from_password(
        cls, mechanism: ScramMechanism, password: str, *, salt: bytes | None = None, iterations: int = MIN_ITERATIONS
    ) -> ScramCredential:
        """The credential of a password, with a random salt unless one is given."""
        salt = secrets.token_bytes(_SALT_BYTES) if salt is None else salt
        return cls.from_salted(mechanism, mechanism.salted_password(password, salt, iterations), salt, iterations)


@dataclass(frozen=True, slots=True)
class ScramAccount:
    """A credential and whoever proves to have it."""

    credential: ScramCredential
    principal: KafkaPrincipal
    expires_at_ms: int | None = None
    """When the credential ends, in milliseconds since 1970: a delegation token's does."""


ScramLookup = Callable[[str, bool], ScramAccount | None]
"""From a user's name to the account. With the flag (extension ``tokenauth``) the name is a delegation token's id."""

_VALUE = r"[\x01-\x2b\x2d-\x7f]+"
_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_NONCE = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64 = r"[A-Za-z0-9+/]*={0,2}"
_EXTENSIONS = rf"(?:,[A-Za-z]+={_VALUE})*"
_CLIENT_FIRST = re.compile(
    rf"(?P<gs2>n,(?:a=(?P<authzid>{_NAME}))?,)(?P<bare>n=(?P<name>{_NAME}),r=(?P<nonce>{_NONCE})(?P<ext>{_EXTENSIONS}))"
)
_CLIENT_FINAL = re.compile(
    rf"(?P<unproved>c=(?P<channel>{_BASE64}),r=(?P<nonce>{_NONCE})(?P<ext>{_EXTENSIONS})),p=(?P<proof>{_BASE64})"
)
_SERVER_FIRST = re.compile(
    rf"r=(?P<nonce>{_NONCE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]{{1,9}})(?:{_EXTENSIONS})"
)
_SERVER_FINAL = re.compile(rf"(?:e=(?P<error>{_VALUE})|v=(?P<signature>{_BASE64}))(?:{_EXTENSIONS})")

_INVALID_CREDENTIALS = "Authentication failed: Invalid user credentials"


def sasl_name(name: str) -> str:
    """A user's name as messages have it."""
    return name.replace("=", "=3D").replace(",", "=2C")


def _name_of(sasl_name: str) -> str:
    return sasl_name.replace("=2C", ",").replace("=3D", "=")


def _parse(pattern: re.Pattern[str], message: bytes, name: str) -> re.Match[str]:
    """``SaslError`` without the message, which may hold what a client took for something else."""
    try:
        match = pattern.fullmatch(message.decode("ascii"))
    except UnicodeDecodeError:
        match = None
    if match is None:
        raise SaslError(f"Invalid SCRAM {name} message format")
    return match


def _decode(text: str, name: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise SaslError(f"Invalid SCRAM {name} message format") from None


def _encode(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _xor(one: bytes, other: bytes) -> bytes:
    """Of two of the same length."""
    return (int.from_bytes(one, "big") ^ int.from_bytes(other, "big")).to_bytes(len(one), "big")


def claimed_user(client_first: bytes) -> tuple[str, bool]:
    """The name in a client's first message, and whether it is a delegation token's id; ``SaslError``."""
    return _claimed(_parse(_CLIENT_FIRST, client_first, "client first"))


def _claimed(message: re.Match[str]) -> tuple[str, bool]:
    extensions = dict(item.split("=", 1) for item in message["ext"].split(",") if item)
    return _name_of(message["name"]), extensions.get("tokenauth", "").lower() == "true"


class CredentialForm(NamedTuple):
    """The parts of a credential that a client sees, beside the salt's value."""

    iterations: int
    salt_bytes: int
    salt_is_text: bool
    """Lower-case letters and digits alone: Apache Kafka's tools make such salts."""

    @classmethod
    def of(cls, salt: bytes, iterations: int) -> CredentialForm:
        """That of a credential."""
        return cls(iterations, len(salt), not salt.translate(None, _SALT_TEXT))


_SALT_TEXT = b"0123456789abcdefghijklmnopqrstuvwxyz"

USUAL_FORM = CredentialForm(MIN_ITERATIONS, _SALT_BYTES, False)
"""That of `ScramCredential.from_password`, unless it is told otherwise."""


class UnknownUsers:
    """Credentials for users who do not exist: nobody has them, and a client cannot tell them from others'.

    Kafka refuses an unknown user's first message, which tells who exists; here it is the second, as with a wrong
    password. Iterations and salts look like those of users who exist, in the same proportions.

    The salt of a name is the same on all nodes, and after a restart, where there is a secret that they share. Without
    one it stays for as long as the process runs, and whoever compares nodes sees who does not exist. So does whoever
    asks for a name before and after the secret, or the last user of a form, has changed.
    """

    def __init__(
        self,
        mechanism: ScramMechanism,
        forms: Callable[[], Mapping[CredentialForm, int]] = dict,
        shared_secret: Callable[[], bytes | None] = lambda: None,
    ) -> None:
        """``forms`` counts the users who exist; ``shared_secret`` is one of the cluster's that no client knows."""
        self._mechanism = mechanism
        self._forms = forms
        self._shared_secret = shared_secret
        self._own_secret = secrets.token_bytes(32)

    def credential(self, name: str) -> ScramCredential:
        """A credential for a name that nobody has; the same each time."""
        secret = self._shared_secret() or self._own_secret
        mac = self._mechanism.hmac(secret, f"{self._mechanism.mechanism_name} {name}".encode())
        form = self._form(mac)
        salt = hashlib.shake_256(mac).digest(form.salt_bytes)
        if form.salt_is_text:
            salt = bytes(_SALT_TEXT[byte % len(_SALT_TEXT)] for byte in salt)
        key = secrets.token_bytes(len(mac))
        return ScramCredential(salt, key, key, form.iterations)

    def _form(self, mac: bytes) -> CredentialForm:
        """The form of a name: each in proportion to its users, and hardly ever another when their number changes."""

        def rank(item: tuple[CredentialForm, int]) -> float:  # weighted rendezvous hashing
            form, users = item
            draw = int.from_bytes(self._mechanism.hmac(mac, repr(tuple(form)).encode())[:6], "big") + 1
            return -users / math.log(draw / ((1 << 48) + 2))

        return max(self._forms().items(), key=rank, default=(USUAL_FORM, 1))[0]


class ScramServer:
    """The server's side of one authentication (Kafka's ``ScramSaslServer``)."""

    def __init__(
        self,
        mechanism: ScramMechanism,
        lookup: ScramLookup,
        unknown_users: UnknownUsers,
        nonce: Callable[[], str] = secrets.token_urlsafe,
    ) -> None:
        self.mechanism = mechanism.mechanism_name
        self.is_done = False
        self._mechanism = mechanism
        self._lookup = lookup
        self._unknown_users = unknown_users
        self._make_nonce = nonce
        self._account: ScramAccount | None = None
        self._credential: ScramCredential | None = None
        self._client_first: re.Match[str] | None = None
        self._server_first = ""
        self._nonce = ""
        self._failed = False

    @property
    def principal(self) -> KafkaPrincipal:
        """The client, once it has authenticated."""
        assert self._account is not None
        return self._account.principal

    @property
    def expires_at_ms(self) -> int | None:
        """When the credential ends."""
        return None if self._account is None else self._account.expires_at_ms

    def respond(self, token: bytes) -> bytes:
        """The answer to the client's next message; ``SaslError`` ends the authentication."""
        if self.is_done or self._failed:
            raise SaslError("the authentication is complete")
        self._failed = True  # until this message turns out to be right
        answer = self._first(token) if self._client_first is None else self._final(token, self._client_first)
        self._failed = False
        return answer

    def _first(self, token: bytes) -> bytes:
        message = _parse(_CLIENT_FIRST, token, "client first")
        name, is_token = _claimed(message)
        self._account = self._lookup(name, is_token)
        nobodys = self._unknown_users.credential(name)  # for whoever exists, too: it takes as long
        self._credential = nobodys if self._account is None else self._account.credential
        authorization_id = message["authzid"]
        if authorization_id and _name_of(authorization_id) != name:
            raise SaslAuthenticationError(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        if self._credential.iterations < MIN_ITERATIONS:
            raise SaslError(
                f"Iterations {self._credential.iterations} is less than the minimum {MIN_ITERATIONS}"
                f" for {self.mechanism}"
            )
        self._client_first = message
        self._nonce = message["nonce"] + self._make_nonce()
        self._server_first = f"r={self._nonce},s={_encode(self._credential.salt)},i={self._credential.iterations}"
        return self._server_first.encode()

    def _final(self, token: bytes, first: re.Match[str]) -> bytes:
        assert self._credential is not None
        message = _parse(_CLIENT_FINAL, token, "client final")
        if not hmac.compare_digest(message["nonce"], self._nonce):
            raise SaslError("Invalid client nonce in the final client message.")  # CVE-2024-56128
        if _decode(message["channel"], "client final") != first["gs2"].encode():
            raise SaslError("Invalid channel binding in the final client message")
        proof = _decode(message["proof"], "client final")
        auth_message = f"{first['bare']},{self._server_first},{message['unproved']}".encode()
        credential, mechanism = self._credential, self._mechanism
        signature = mechanism.hmac(credential.stored_key, auth_message)
        if len(proof) != len(signature):
            raise SaslError(_INVALID_CREDENTIALS)
        is_right = hmac.compare_digest(mechanism.hash(_xor(proof, signature)), credential.stored_key)
        server_signature = mechanism.hmac(credential.server_key, auth_message)
        if not is_right or self._account is None:
            raise SaslError(_INVALID_CREDENTIALS)
        self.is_done = True
        return f"v={_encode(server_signature)}".encode()


class ScramClient:
    """The client's side of one authentication."""

    def __init__(
        self,
        mechanism: ScramMechanism,
        user: str,
        password: str,
        *,
        is_token: bool = False,
        nonce: Callable[[], str] = secrets.token_urlsafe,
    ) -> None:
        """``is_token``: the user is a delegation token's id, and the password its HMAC (KIP-48)."""
        self.mechanism = mechanism.mechanism_name
        self.is_done = False
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce()
        extension = ",tokenauth=true" if is_token else ""
        self._bare = f"n={sasl_name(user)},r={self._nonce}{extension}"
        self._server_signature: bytes | None = None

    def first(self) -> bytes:
        """The message with the user's name."""
        return f"n,,{self._bare}".encode()

    def respond(self, challenge: bytes) -> bytes:
        """The proof, and nothing after the server's own; ``SaslError`` if the server proves nothing."""
        if self.is_done:
            raise SaslError("the authentication is complete")
        if self._server_signature is None:
            return self._final(challenge)
        message = _parse(_SERVER_FINAL, challenge, "server final")
        if message["error"] is not None:
            raise SaslError(f"the server refuses the authentication: {message['error']}")
        if not hmac.compare_digest(_decode(message["signature"], "server final"), self._server_signature):
            raise SaslError("the server does not know the password: its signature is wrong")
        self.is_done = True
        return b""

    def _final(self, challenge: bytes) -> bytes:
        message = _parse(_SERVER_FIRST, challenge, "server first")
        if not message["nonce"].startswith(self._nonce) or len(message["nonce"]) == len(self._nonce):
            raise SaslError("the server's nonce does not begin with the client's")
        iterations = int(message["iterations"])
        if not MIN_ITERATIONS <= iterations <= CLIENT_MAX_ITERATIONS:
            raise SaslError(
                f"the server asks for {iterations} iterations, and {MIN_ITERATIONS} to {CLIENT_MAX_ITERATIONS} will do"
            )
        mechanism = self._mechanism
        salted = mechanism.salted_password(self._password, _decode(message["salt"], "server first"), iterations)
        unproved = f"c={_encode(b'n,,')},r={message['nonce']}"
        auth_message = f"{self._bare},{challenge.decode()},{unproved}".encode()
        client_key = mechanism.hmac(salted, b"Client Key")
        signature = mechanism.hmac(mechanism.hash(client_key), auth_message)
        self._server_signature = mechanism.hmac(mechanism.hmac(salted, b"Server Key"), auth_message)
        return f"{unproved},p={_encode(_xor(client_key, signature))}".encode()
