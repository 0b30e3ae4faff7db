"""Security inside a node: TLS streams, handshakes in a thread, logins of connections, the authorizer's place.

Mechanisms, key stores and authorizers themselves are in `kbroker.security`. Begin with `security`, which holds what a
node has of it; `tls_stream` is where a TLS record becomes bytes.
"""
