"""Questions to a token provider, asked over HTTP in a thread: one answer, no redirects, bounded in bytes and in time.

Nothing of an answer that is not wanted is shown, and neither are credentials, in a URL or elsewhere. TLS is by the
options ``ssl.*`` of a line of JAAS, or as the machine trusts.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

from kbroker.config.config_key import InvalidConfig
from kbroker.config.security import SECURITY_CONFIGS

MAX_BODY = 1 << 20
"""Bytes of an answer."""


class ProviderError(Exception):
    """A provider that does not give what it is asked for; one line. ``is_final``: another try will not help.

    ``status`` and ``body`` are those of its answer, if there was one.
    """

    def __init__(self, text: str, *, is_final: bool = False, status: int | None = None, body: bytes = b"") -> None:
        super().__init__(text)
        self.is_final = is_final
        self.status = status
        self.body = body


class Url(NamedTuple):
    """The address of a provider, or of a file."""

    scheme: str
    host: str
    port: int
    target: str
    """Path and query, or the path of a file."""

    @property
    def is_file(self) -> bool:
        """Whether it is a file's."""
        return self.scheme == "file"

    @property
    def is_exposed(self) -> bool:
        """Whether whoever sits on the way to it can read what is said, and say something else."""
        return self.scheme == "http" and self.host not in ("localhost", "127.0.0.1", "::1")

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"file://{self.target}" if self.is_file else f"{self.scheme}://{host}:{self.port}{self.target}"


def parse_url(text: str) -> Url:
    """A URL of https, http or a file; ``ValueError`` in a few words for any other."""
    try:
        parts = urlsplit(text.strip())
        port = parts.port
    except ValueError:
        raise ValueError("it is no URL") from None
    if parts.scheme == "file":
        if parts.netloc or not parts.path.startswith("/"):
            raise ValueError("the URL of a file is file:///path")
        return Url("file", "", 0, unquote(parts.path))
    if parts.scheme not in ("http", "https"):
        raise ValueError("it is no URL of https, http or file")
    if not parts.hostname or parts.username is not None or parts.password is not None:
        raise ValueError("the URL has no host, or has a user in it")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if not target.isascii() or not target.isprintable() or " " in target or not parts.hostname.isascii():
        raise ValueError("the URL has characters that are to be escaped")
    return Url(parts.scheme, parts.hostname, port or (443 if parts.scheme == "https" else 80), target)


def read_file(url: Url) -> bytes:
    """The bytes of a file; :class:`ProviderError`."""
    try:
        with Path(url.target).open("rb") as file:
            data = file.read(MAX_BODY + 1)
    except OSError as error:
        raise ProviderError(f"{url.target} cannot be read: {error.strerror or type(error).__name__}") from None
    if len(data) > MAX_BODY:
        raise ProviderError(f"{url.target} has more than {MAX_BODY} bytes")
    return data


class Limits(NamedTuple):
    """Seconds that a question may take."""

    connect: float = 5.0
    in_all: float = 8.0


LIMITS: Final = Limits()


def ask(
    url: Url,
    *,
    context: ssl.SSLContext | None = None,
    limits: Limits = LIMITS,
    headers: Mapping[str, str] | None = None,
    form: bytes | None = None,
    method: str | None = None,
) -> bytes:
    """The body of the answer to a GET, to a POST of ``form``, or to another ``method``. It blocks.

    :class:`ProviderError`.
    """
    try:
        with _connected(url, context, limits) as connection:
            connection.request(method or ("GET" if form is None else "POST"), url.target, form, dict(headers or {}))
            response = connection.getresponse()
            body = response.read(MAX_BODY + 1)
            is_complete = not response.length
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise ProviderError(f"{_shown(url)}: {_told(error)}") from None
    if len(body) > MAX_BODY:
        raise ProviderError(f"{_shown(url)} answers with more than {MAX_BODY} bytes")
    if response.status not in (200, 201):
        # 4xx tells that the question is wrong; a redirect is not followed, whatever it points at.
        is_final = 300 <= response.status < 500 and response.status not in (408, 425, 429)
        text = f"{_shown(url)} answers with status {response.status}"
        raise ProviderError(text, is_final=is_final, status=response.status, body=body)
    if not is_complete:
        raise ProviderError(f"{_shown(url)} does not finish its answer")
    return body


def _shown(url: Url) -> str:
    """The URL without its query, in which some have secrets."""
    return str(url._replace(target=url.target.partition("?")[0]))


def _told(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message.rstrip('.')}"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, http.client.HTTPException):
        return "it does not answer in HTTP, or not in time"
    return getattr(error, "strerror", None) or type(error).__name__


@contextmanager
def _connected(url: Url, context: ssl.SSLContext | None, limits: Limits) -> Iterator[http.client.HTTPConnection]:
    """A connection that is cut off when the time is over, however slowly bytes come until then."""
    deadline = time.monotonic() + limits.in_all
    raw = socket.create_connection((url.host, url.port), min(limits.connect, limits.in_all))
    sock = raw
    try:
        raw.settimeout(limits.in_all)
        if url.scheme == "https":
            made = context if context is not None else ssl.create_default_context()
            sock = made.wrap_socket(raw, server_hostname=url.host, do_handshake_on_connect=False)
        # socket's own method: that of an SSLSocket would take its TLS away under the reader.
        is_over = threading.Event()
        cut = threading.Timer(max(0.0, deadline - time.monotonic()), _cut_off, [sock, is_over])
        cut.daemon = True
        cut.start()
        try:
            if isinstance(sock, ssl.SSLSocket):
                sock.do_handshake()
            connection = http.client.HTTPConnection(url.host, url.port)
            connection.sock = sock
            yield connection
        finally:
            cut.cancel()
            if is_over.is_set():
                raise TimeoutError  # whatever the end looked like to the reader
    finally:
        sock.close()


def _cut_off(sock: socket.socket, is_over: threading.Event) -> None:
    is_over.set()
    try:
        socket.socket.shutdown(sock, socket.SHUT_RDWR)
    except OSError:
        pass  # it is closed already


class _Options:
    """The options, typed and with Kafka's defaults."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options

    def __getitem__(self, name: str) -> Any:
        key = SECURITY_CONFIGS[name]
        return key.parse(self._options[name]) if name in self._options else key.default_value()


def provider_context(options: Mapping[str, str]) -> ssl.SSLContext | None:
    """The context that the options ask for (``JaasOptionsUtils``); None if they ask for none.

    :class:`InvalidConfig` if a store cannot be read. It names the option, and tells no value.
    """
    if not any(name.startswith("ssl.") for name in options):
        return None
    for name in options:
        if name.startswith("ssl.") and name not in SECURITY_CONFIGS:
            raise InvalidConfig(f"{name} is no option of OAuthBearerLoginModule")
    from kbroker.security.tls.contexts import client_context

    return client_context(_Options(options))
