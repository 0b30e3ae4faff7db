"""A principal builder of one's own: the last step of a listener's admission (Kafka's ``KafkaPrincipalBuilder``).

It is asked once for a connection. A client that authenticates again must be the same user as before, and keeps its
principal.
"""

from __future__ import annotations

from typing import Any

from kbroker.node.rules.connection_calls import AwaitedCalls, NoAnswer
from kbroker.node.serving.admission import AdmissionRefused, Admitted
from kbroker.rules.decision import Decision
from kbroker.rules.records import ConnectingClient
from kbroker.security.principal import KafkaPrincipal, as_authenticated, can_be_sent, parse_principal

_CONSEQUENCE = "the client is not let in"


class PrincipalStep:
    """The step of one listener (:class:`~kbroker.node.serving.admission.AdmissionStep`)."""

    def __init__(self, rule: Any, name: str, listener: str, security_protocol: str) -> None:
        """``name`` is the rule's in the node's file."""
        self._calls = AwaitedCalls(rule, "build", name, _CONSEQUENCE)
        self._listener = listener
        self._security_protocol = security_protocol

    async def admit(self, client: Admitted) -> None:
        """Ask who the client is. :class:`AdmissionRefused` if the rule does not say so."""
        peer = ConnectingClient(
            listener=self._listener,
            security_protocol=self._security_protocol,
            host=str(client.stream.peer[0]),
            principal=client.principal,
            mechanism=client.mechanism,
            certificate=client.certificate,
            subject=None if client.certificate is None else _subject(client.certificate),
        )
        try:
            answer = await self._calls.call(peer)
            if answer is None or answer is Decision.DENIED:
                raise AdmissionRefused("the principal builder does not let it in")
            principal = client.principal if answer is Decision.NOT_MINE else _principal(answer)
            if principal is None:
                raise self._calls.nonsense(answer)
        except NoAnswer:
            raise AdmissionRefused("the principal builder has not said who it is") from None
        # A token stays one: whoever came with it may ask for no other (``SaslServerAuthenticator``).
        client.principal = as_authenticated(principal, by_token=client.principal.token_authenticated)


def _subject(certificate: bytes) -> str:
    from kbroker.security.tls.names import subject_name

    try:
        return subject_name(certificate)
    except ValueError as error:
        raise AdmissionRefused(f"its certificate cannot be read: {error}") from None


def _principal(answer: object) -> KafkaPrincipal | None:
    """A principal, or ``Type:name``; None if it is neither."""
    try:
        if isinstance(answer, str):
            answer = parse_principal(answer)
        if not isinstance(answer, KafkaPrincipal) or not all(map(_is_text, answer)):
            return None
    except ValueError:
        return None
    return KafkaPrincipal(answer.principal_type, answer.name)


def _is_text(text: object) -> bool:
    return type(text) is str and can_be_sent(text)
