"""The principal inside a forwarded request (Envelope)."""

from __future__ import annotations

from kbroker.wire.schema import Bool, Str, message


@message(versions="0", flexible="0+")
class DefaultPrincipalData:
    """A principal as Kafka's default builder serializes it."""

    type: Str = ""
    name: Str = ""
    token_authenticated: Bool = False
