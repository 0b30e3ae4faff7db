"""Authentication and authorization: all but the connections themselves.

`principal` is who a connection belongs to and `protocol` what a listener asks for; `tls` reads key stores and makes
contexts from properties; `sasl` holds both sides of each mechanism; `authorizer` decides. Key stores are read from
files, and keys of token providers over HTTP (`sasl.oauthbearer.http`); nothing else reaches outside. The node puts all
to work (`kbroker.node.security.security`), and so do kbroker's own clients. Begin with `principal`.
"""
