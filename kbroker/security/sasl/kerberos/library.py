"""Contexts and credentials of the system's Kerberos, through the package ``gssapi`` (the extra ``kbroker[gssapi]``).

Everything here may block, for a KDC, a name server or the file of a replay cache: an event loop has it in threads.
The library reads the environment (``KRB5_CONFIG``) and ``krb5.conf``. Importing this module without the package is an
:class:`InvalidConfig`.
"""

from __future__ import annotations

import logging
import os
import random
import secrets
import subprocess
import threading
import time

from kbroker.config.config_key import InvalidConfig
from kbroker.security.sasl.kerberos.login import KerberosOptions, RenewalRules
from kbroker.security.sasl.mechanism import SaslError

try:
    import gssapi
    from gssapi.raw import GSSError
except ImportError as error:
    raise InvalidConfig(
        "it needs the package gssapi: pip install 'kbroker[gssapi]'"
        f" (on Debian after apt-get install gcc python3-dev libkrb5-dev): {error}"
    ) from None

logger = logging.getLogger(__name__)

KINIT_SECONDS = 60.0
"""The time that the command that renews tickets may take."""

_Store = dict[bytes | str, bytes | str]
_NO_REASONS = ("Unspecified GSS failure", "Unknown error", "Success")
"""Beginnings of what the library says when it says nothing."""


class GssContext:
    """One side's context (:class:`~kbroker.security.sasl.kerberos.exchange.Context`)."""

    def __init__(self, context: gssapi.SecurityContext) -> None:
        vars(context)["__DEFER_STEP_ERRORS__"] = False  # else the next call would raise what `step` fails by
        self._context = context

    @property
    def is_established(self) -> bool:
        """Whether both sides know one another."""
        return bool(self._context.complete)

    @property
    def initiator(self) -> str:
        """The client's principal, once established."""
        try:
            return str(self._context.initiator_name)
        except (GSSError, UnicodeDecodeError) as error:
            raise _failed(error) from None

    def step(self, token: bytes) -> bytes:
        """The token that follows upon the other side's."""
        try:
            return bytes(self._context.step(token or None) or b"")
        except (GSSError, ValueError, TypeError) as error:
            raise _failed(error) from None

    def wrap(self, message: bytes) -> bytes:
        """A message with proof of its origin, not encrypted."""
        try:
            return bytes(self._context.wrap(message, encrypt=False).message)
        except GSSError as error:
            raise _failed(error) from None

    def unwrap(self, token: bytes) -> bytes:
        """The message of a token that the other side has made by ``wrap``."""
        try:
            return bytes(self._context.unwrap(token).message)
        except GSSError as error:
            raise _failed(error) from None


class Acceptor:
    """A server's keys, for any number of contexts, in any thread."""

    def __init__(self, options: KerberosOptions) -> None:
        """:class:`SaslError` if the keytab cannot be read, or has no key of the principal."""
        self._credentials = _keys(options)

    def context(self) -> GssContext:
        """A new one."""
        return GssContext(gssapi.SecurityContext(creds=self._credentials, usage="accept"))


class Initiator:
    """A client's login: its ticket, taken when it is needed and renewed when its time is due; in any thread."""

    def __init__(self, options: KerberosOptions, rules: RenewalRules) -> None:
        """:class:`SaslError` if the keytab cannot be read, or has no key of the principal. No KDC is asked yet."""
        if options.use_keytab and not options.use_ticket_cache:
            _keys(options)
        self._options = options
        self._rules = rules
        self._lock = threading.Lock()
        self._credentials: gssapi.Credentials | None = None
        self._renew_at = 0.0

    def context(self, host: str) -> GssContext:
        """A new one with the server of this host. :class:`SaslError` if there is no ticket to be had."""
        credentials = self._current()
        try:
            server = gssapi.Name(f"{self._options.service_name}@{host}", gssapi.NameType.hostbased_service)
            flags = gssapi.RequirementFlag.mutual_authentication | gssapi.RequirementFlag.integrity
            return GssContext(
                gssapi.SecurityContext(
                    name=server, creds=credentials, usage="initiate", flags=flags, mech=gssapi.MechType.kerberos
                )
            )
        except GSSError as error:
            raise _failed(error) from None

    def _current(self) -> gssapi.Credentials:
        with self._lock:
            now = time.monotonic()
            held = self._credentials
            if held is not None and now < self._renew_at:
                return held
            try:
                fresh, lifetime = self._log_in(renewing=held is not None)
            except SaslError as error:
                if held is None or _lifetime(held) <= 0:
                    raise
                self._renew_at = now + self._rules.min_between
                logger.warning("a Kerberos ticket is not renewed, and is used as long as it lasts: %s", error)
                return held
            self._credentials = fresh
            self._renew_at = self._rules.renew_at(now, lifetime, random.random())
            return fresh

    def _log_in(self, *, renewing: bool) -> tuple[gssapi.Credentials, float]:
        """Credentials and the seconds they last: of the cache if there are any, else by the keytab."""
        options = self._options
        if options.use_ticket_cache:
            if renewing:
                self._renew_cache()
            try:
                return _acquired(options.principal, {"ccache": options.ticket_cache} if options.ticket_cache else None)
            except SaslError:
                if not options.use_keytab:
                    raise
        # A cache of its own for each: the library would go on with the ticket that it has.
        store: _Store = {"ccache": f"MEMORY:kbroker-{secrets.token_hex(8)}"}
        if options.keytab:
            store["client_keytab"] = f"FILE:{options.keytab}"
        return _acquired(options.principal, store)

    def _renew_cache(self) -> None:
        """Run ``kinit -R``; tickets that cannot be renewed may have been replaced by somebody meanwhile."""
        command = [self._rules.kinit, "-R"]
        environment = dict(os.environ)
        if self._options.ticket_cache:
            environment["KRB5CCNAME"] = self._options.ticket_cache
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=KINIT_SECONDS,
                env=environment,
                stdin=subprocess.DEVNULL,
            )
        except (OSError, subprocess.SubprocessError) as error:
            logger.warning("the Kerberos tickets of the cache are not renewed: %s", error)
            return
        if done.returncode:
            told = (done.stderr or done.stdout).strip().replace("\n", " ")
            logger.warning("the Kerberos tickets of the cache are not renewed: %s", told[:300])


def default_realm() -> str:
    """The realm of ``krb5.conf``, empty if there is none."""
    try:
        name = str(gssapi.Name("x", gssapi.NameType.user).canonicalize(gssapi.MechType.kerberos))
    except GSSError:
        return ""
    return name.partition("@")[2]


def _principal(text: str) -> gssapi.Name:
    return gssapi.Name(text, gssapi.NameType.kerberos_principal)


def _keys(options: KerberosOptions) -> gssapi.Credentials:
    """The keys of the principal in its keytab."""
    store: _Store | None = {"keytab": f"FILE:{options.keytab}"} if options.keytab else None
    try:
        return gssapi.Credentials(
            name=_principal(options.principal or ""), usage="accept", mechs=[gssapi.MechType.kerberos], store=store
        )
    except GSSError as error:
        raise _failed(error) from None


def _acquired(principal: str | None, store: _Store | None) -> tuple[gssapi.Credentials, float]:
    try:
        credentials = gssapi.Credentials(
            name=_principal(principal) if principal else None,
            usage="initiate",
            mechs=[gssapi.MechType.kerberos],
            store=store,
        )
        lifetime = _lifetime(credentials)
    except GSSError as error:
        raise _failed(error) from None
    if lifetime <= 0:
        raise SaslError("the Kerberos ticket has expired")
    return credentials, lifetime


def _lifetime(credentials: gssapi.Credentials) -> float:
    """The seconds that credentials last, 0 if they have ended."""
    try:
        left = credentials.lifetime
    except gssapi.raw.ExpiredCredentialsError:
        return 0.0
    except GSSError as error:
        raise _failed(error) from None
    return float("inf") if left is None else float(left)


def _failed(error: Exception) -> SaslError:
    """The error for one of the library: its own words of Kerberos, which hold no secret."""
    if not isinstance(error, GSSError):
        return SaslError(f"Kerberos: {type(error).__name__}")
    reasons: list[str] = []
    for code, is_major in ((error.min_code, False), (error.maj_code, True)):
        reasons = reasons or [
            text for text in error.get_all_statuses(code, is_major) if not text.startswith(_NO_REASONS)
        ]
    return SaslError(f"Kerberos: {'; '.join(reasons) or 'the library gives no reason'}")
