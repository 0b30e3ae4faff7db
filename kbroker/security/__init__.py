"""Authentication and authorization: the parts that need no network. Sans-IO.

`principal` is who a connection belongs to and `protocol` what a listener asks for; `tls` reads key stores and makes
contexts from properties; `sasl` holds both sides of each mechanism; `authorizer` decides. The node puts them to work
(`kbroker.node.security`), and so do kbroker's own clients.
"""
