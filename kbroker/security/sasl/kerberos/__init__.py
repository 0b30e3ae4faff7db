"""Kerberos (GSSAPI, RFC 4752): names, logins and the exchange. `library` alone needs the extra ``kbroker[gssapi]``."""
