"""OAUTHBEARER (RFC 7628, KIP-255): clients show a token that somebody else has signed.

`messages` has the two sides and the form of what goes over the wire, `token` is what a validator makes of a token.
`keys` checks signatures and `claims` what is signed, `unsecured` is for tokens without a signature. `http` asks
providers, `retrieval` gets a client's tokens. Only `keys` needs the package ``joserfc``. A node's validators are in
`kbroker.node.security.sasl`.
"""
