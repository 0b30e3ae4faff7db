"""TLS without a network: key stores, contexts of Python's ``ssl``, the names of principals, a certificate authority.

`stores` and `jks` read what people have, `contexts` makes contexts from properties, `names` and `mapping_rules` say who
a certificate belongs to, `authority` makes certificates. All of it but `mapping_rules` needs the package
``cryptography``: the extra ``kbroker[tls]``.
"""
