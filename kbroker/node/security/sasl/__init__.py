"""SASL in a node: what its listeners offer, how clients are let in, and how it logs in to other nodes.

The mechanisms are in `kbroker.security.sasl`. Begin with `setup`, the table of mechanisms, whose properties are read
in modules of their names; then `admission` for clients, `connection` for other nodes.
"""
