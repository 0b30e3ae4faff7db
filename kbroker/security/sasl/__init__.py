"""SASL: both sides of each mechanism, without a network.

`jaas` reads lines of ``sasl.jaas.config``; `plain` and `scram` are mechanisms; `client` chooses a client's side.
`mechanism` says what all of them have in common.
"""
