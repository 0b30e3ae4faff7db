"""Errors of SASL. None of them tells a secret."""

from __future__ import annotations


class SaslError(Exception):
    """An authentication that failed (Java's ``SaslException``). The text is for logs: a client is told less."""


class SaslAuthenticationError(SaslError):
    """An authentication that failed, with a text that the client is told (Kafka's ``SaslAuthenticationException``)."""

    def __init__(self, text: str, detail: str = "") -> None:
        """``detail`` is what only the log may say beyond ``text``."""
        super().__init__(text)
        self.detail = detail
