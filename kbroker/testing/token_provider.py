"""A token provider on loopback, for tests of OAUTHBEARER: it signs tokens, shows its keys, and answers clients.

It is no provider for anything else: it has no TLS, and its secrets are those of the test. It needs the extra
``kbroker[oauth]``.
"""

from __future__ import annotations

import base64
import json
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote_plus

from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, RSAKey

from kbroker.security.sasl.oauthbearer.assertion import ASSERTION_TYPE, BEARER_GRANT
from kbroker.security.sasl.oauthbearer.compact import decode_json, split_token
from kbroker.security.sasl.oauthbearer.token import TokenRefused

Answer = tuple[int, Mapping[str, str], bytes]
"""Status, headers and body."""


class TokenProvider:
    """A provider of tokens, running while it is entered.

    ::

        with TokenProvider(clients={"alice": "secret"}) as provider:
            properties = {"sasl.oauthbearer.jwks.endpoint.url": provider.jwks_url, ...}
            token = provider.token("alice")
    """

    def __init__(
        self,
        *,
        audience: str = "kbroker",
        clients: Mapping[str, str] | None = None,
        public_keys: Mapping[str, str] | None = None,
        lifetime: float = 3600.0,
        algorithm: str = "RS256",
        port: int = 0,
    ) -> None:
        """``clients`` have a secret each, with which they get tokens for themselves, of ``lifetime`` seconds.

        ``public_keys`` are in PEM, of clients that prove themselves by assertions (RFC 7523) of their names.
        ``port`` is any free one if it is 0; ``OSError`` if it cannot be had.
        """
        self.audience = audience
        self.clients = dict(clients or {})
        self.public_keys = dict(public_keys or {})
        self.lifetime = lifetime
        self.algorithm = algorithm
        self.key = self._new_key()
        self.keys: list[RSAKey | ECKey] = [self.key]
        """Those that the provider shows."""
        self.requests: list[str] = []
        """The paths that were asked for, in their order."""
        self.answers: dict[str, Callable[[], Answer]] = {}
        """By path, answers in place of the provider's own: for tests of what goes wrong."""
        self._server = _Server(self, port)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    def __enter__(self) -> TokenProvider:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def issuer(self) -> str:
        """The name in the claim ``iss``, also the address of the provider."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def jwks_url(self) -> str:
        """The address of the keys, for ``sasl.oauthbearer.jwks.endpoint.url``."""
        return f"{self.issuer}/jwks"

    @property
    def token_url(self) -> str:
        """The address of the tokens, for ``sasl.oauthbearer.token.endpoint.url``."""
        return f"{self.issuer}/token"

    def _new_key(self) -> RSAKey | ECKey:
        kid = uuid.uuid4().hex
        if self.algorithm.startswith("ES"):
            curve = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}[self.algorithm]
            return ECKey.generate_key(curve, {"kid": kid, "use": "sig"})
        return RSAKey.generate_key(2048, {"kid": kid, "use": "sig"})

    def rotate(self) -> None:
        """Sign with a new key, and show it alone."""
        self.key = self._new_key()
        self.keys = [self.key]

    def jwks(self) -> bytes:
        """The key set, as it is shown."""
        return json.dumps({"keys": [key.as_dict(private=False) for key in self.keys]}).encode()

    def token(self, subject: str = "alice", header: Mapping[str, Any] | None = None, **claims: Any) -> str:
        """A signed token; ``claims`` replace those that it would have, None leaves one out."""
        now = time.time()
        held = {"sub": subject, "iss": self.issuer, "aud": self.audience, "iat": now, "exp": now + self.lifetime}
        held = {name: value for name, value in {**held, **claims}.items() if value is not None}
        protected = {"alg": self.algorithm, "kid": self.key.kid, **(header or {})}
        protected = {name: value for name, value in protected.items() if value is not None}
        return jws.serialize_compact(protected, json.dumps(held), self.key, [self.algorithm])

    def answer(self, path: str, authorization: str, form: str) -> Answer:
        """The answer to a request."""
        self.requests.append(path)
        if path in self.answers:
            return self.answers[path]()
        as_json = {"Content-Type": "application/json"}
        if path == "/jwks":
            return 200, as_json, self.jwks()
        if path != "/token":
            return 404, {}, b""
        asked = {name: values[0] for name, values in parse_qs(form).items()}
        grant, assertion = asked.get("grant_type"), asked.get("assertion", "")
        if grant not in ("client_credentials", BEARER_GRANT):
            return 400, as_json, b'{"error":"unsupported_grant_type"}'
        if asked.get("client_assertion_type") == ASSERTION_TYPE:
            assertion = asked.get("client_assertion", "")
        is_asserted = grant == BEARER_GRANT or assertion
        client = self._asserted(assertion) if is_asserted else self._client(authorization)
        if client is None:
            return 401, as_json, b'{"error":"invalid_client"}'
        token = self.token(client, scope=asked.get("scope"))
        body = {"access_token": token, "token_type": "Bearer", "expires_in": int(self.lifetime)}
        return 200, as_json, json.dumps(body).encode()

    def _asserted(self, assertion: str) -> str | None:
        """The client that has made an assertion for this provider, if it holds now."""
        try:
            parts = split_token(assertion)
            header, claims = decode_json(parts.header, "header"), decode_json(parts.payload, "payload")
            pem, algorithm = self.public_keys[claims["iss"]], header["alg"]
            key = ECKey.import_key(pem) if algorithm == "ES256" else RSAKey.import_key(pem)
            jws.deserialize_compact(assertion, key, [algorithm])
            is_for_it = claims["aud"] in (self.issuer, self.token_url)
            is_now = claims["nbf"] <= time.time() < claims["exp"]
        except (TokenRefused, JoseError, KeyError, TypeError, ValueError):
            return None
        return str(claims["iss"]) if is_for_it and is_now else None

    def _client(self, authorization: str) -> str | None:
        kind, _, encoded = authorization.partition(" ")
        try:
            name, _, secret = base64.b64decode(encoded).decode().partition(":")
        except ValueError:
            return None
        for known in (name, unquote_plus(name)):
            if kind == "Basic" and self.clients.get(known) in (secret, unquote_plus(secret)):
                return known
        return None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, provider: TokenProvider, port: int) -> None:
        self.provider = provider
        super().__init__(("127.0.0.1", port), _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        self._answer("")

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode())

    def _answer(self, form: str) -> None:
        status, headers, body = self.server.provider.answer(self.path, self.headers.get("Authorization", ""), form)
        try:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)
        except OSError:
            pass  # the client has gone

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: tests look at `TokenProvider.requests`."""
