"""Kerberos (GSSAPI, RFC 4752): names, logins and the exchange.

A node's part of it is `kbroker.node.security.sasl.gssapi`. `library` alone needs the extra ``kbroker[gssapi]``. Begin
with `exchange`.
"""
