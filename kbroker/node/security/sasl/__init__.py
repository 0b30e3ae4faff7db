"""SASL in a node: what its listeners offer, how clients are let in, and how it logs in to other nodes.

``setup`` has the table of mechanisms; each mechanism's properties are read in a module of its name.
"""
