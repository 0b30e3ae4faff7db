"""SASL: both sides of each mechanism, without a network.

A node's listeners carry the messages in `kbroker.node.security.sasl`. Begin with `mechanism`, which says what all
mechanisms have in common; `plain` and `scram` are two of them, `client` chooses a client's side, and `jaas` reads lines
of ``sasl.jaas.config``.
"""
