"""The server's side of OAUTHBEARER, errors included (Kafka's ``OAuthBearerSaslServer``)."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping

from kbroker.security.principal import USER_TYPE, KafkaPrincipal, can_be_sent
from kbroker.security.sasl.errors import SaslAuthenticationError, SaslError
from kbroker.security.sasl.oauthbearer.messages import InitialResponse, error_message, parse_initial_response
from kbroker.security.sasl.oauthbearer.token import OAUTHBEARER, BearerToken, TokenRefused, Validator
from kbroker.security.shown import shown


class OAuthBearerServer:
    """The server's side of one authentication."""

    mechanism = OAUTHBEARER

    def __init__(self, validate: Validator) -> None:
        self._validate = validate
        self._refusal: SaslAuthenticationError | None = None
        self.token: BearerToken | None = None
        """The client's token once it is let in."""
        self.extensions: Mapping[str, str] = {}
        """The client's SASL extensions, for those who make more of them. The client alone vouches for them."""

    @property
    def is_done(self) -> bool:
        """Whether the client has been let in."""
        return self.token is not None

    @property
    def principal(self) -> KafkaPrincipal:
        """The client, once it has authenticated."""
        assert self.token is not None
        return KafkaPrincipal(USER_TYPE, self.token.principal_name)

    @property
    def expires_at_ms(self) -> int | None:
        """When the token ends."""
        assert self.token is not None
        return self.token.expires_at_ms

    def respond(self, token: bytes) -> Awaitable[bytes]:
        """Judge the client's message. An answer that is not empty is an error, which the client confirms."""
        return self._respond(token)

    async def _respond(self, message: bytes) -> bytes:
        if self._refusal is not None:
            raise self._refusal
        if self.token is not None:
            raise SaslError("the authentication is complete")
        parsed = parse_initial_response(message)
        try:
            judged = self._validate(parsed.token)
            token = judged if isinstance(judged, BearerToken) else await judged
            if not can_be_sent(token.principal_name):
                raise TokenRefused("the principal's name is too long, or no text")
        except TokenRefused as refused:
            text = error_message(refused)
            self._refusal = SaslAuthenticationError(text, detail=shown(str(refused), 500))
            return text.encode()
        self._check_authorization(parsed, token)
        self.token, self.extensions = token, parsed.extensions
        return b""

    @staticmethod
    def _check_authorization(parsed: InitialResponse, token: BearerToken) -> None:
        wanted = parsed.authorization_id
        if wanted and wanted != token.principal_name:
            raise SaslAuthenticationError(
                f"Authentication failed: Client requested an authorization id ({wanted}) that is different from"
                f" the token's principal name ({token.principal_name})"
            )
