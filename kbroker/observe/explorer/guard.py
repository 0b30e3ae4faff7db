"""The guard of an HTTP server that listens for one person: no page of another site may ask, under no foreign name."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit


def may_ask(headers: Mapping[str, str], own_host: str) -> bool:
    """Whether a request comes from no page of another site; names of ``headers`` are in lower case.

    A browser that is made to take a foreign name for this address tells that name (DNS rebinding). A page of another
    origin tells its own. Where neither is told, as for an image, the browser says whose page asks (``Sec-Fetch-Site``).
    """
    if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        return False
    host = headers.get("host", "")
    origin = headers.get("origin")
    if origin is not None and origin != f"http://{host}":
        return False
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    return name == "localhost" or _is_address(name) or (bool(own_host) and name == own_host.lower())


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
