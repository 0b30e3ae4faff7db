"""The texts by which a secret could show, and the search for them."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable


def forms(secret: bytes) -> set[str]:
    """The texts by which bytes could show: as they are, in hexadecimal, in base64, as Python writes them."""
    found = {secret.hex(), secret.hex(" "), base64.b64encode(secret).decode().rstrip("="), repr(secret)[2:-1]}
    return found | ({secret.decode()} if secret.isascii() else set())


def tokens_in(text: str) -> list[str]:
    """The parts of signed tokens, header or claims; an id of a cluster is too short to be taken for one."""
    return re.findall(r"eyJ[\w-]{30,}", text)


def shown_in(text: str, secrets: Iterable[str]) -> list[str]:
    """Those of the texts that are in another one, as they are or as JSON writes them."""
    return [secret for secret in secrets if secret in text or json.dumps(secret)[1:-1] in text]
