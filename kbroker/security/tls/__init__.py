"""TLS without a network: key stores, contexts of Python's ``ssl``, the names of principals, a certificate authority.

`stores` and `jks` read what people have, `material` is a listener's TLS as it is now, `names` says who a certificate
belongs to, `authority` makes certificates. All of it needs the package ``cryptography``, the extra ``kbroker[tls]``:
without it the import is an :class:`InvalidConfig`. Bytes are encrypted in `kbroker.node.security.tls_stream`. Begin
with `contexts`, which makes contexts from properties.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from kbroker.config.config_key import InvalidConfig

_OLDEST = 45
"""The first major version of ``cryptography`` with all that is used here; as the extra in pyproject.toml has it."""


def _check() -> None:
    """`InvalidConfig` without ``cryptography``, or with one that is too old (as distributions have)."""
    install = "pip install 'kbroker[tls]'"
    if find_spec("cryptography") is None:
        raise InvalidConfig(f"TLS needs the package cryptography: {install}")
    try:
        found = version("cryptography")
    except PackageNotFoundError:
        return  # it is there in a way of its own, and nothing says how old it is
    major = found.partition(".")[0]
    if major.isdecimal() and int(major) < _OLDEST:
        raise InvalidConfig(f"TLS needs cryptography {_OLDEST} or later ({found} is there): {install}")


_check()
