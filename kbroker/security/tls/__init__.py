"""TLS without a network: key stores, contexts of Python's ``ssl``, the names of principals, a certificate authority.

`stores` and `jks` read what people have, `contexts` makes contexts from properties, `material` is a listener's TLS as
it is now, `names` and `mapping_rules` say who a certificate belongs to, `authority` makes certificates. All of it needs
the package ``cryptography``, the extra ``kbroker[tls]``: without it the import is an :class:`InvalidConfig`.
"""

from __future__ import annotations

from importlib.util import find_spec

from kbroker.config.definition import InvalidConfig

if find_spec("cryptography") is None:
    raise InvalidConfig("TLS needs the package cryptography: pip install 'kbroker[tls]'")
