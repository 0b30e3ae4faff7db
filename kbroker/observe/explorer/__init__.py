"""The protocol explorer: requests and answers as values, explained. A pure core over `wire`.

A node that is watched makes `exchange.Exchange` objects, and streams them in the form of `lines`; `kbroker watch` and a
saved file are read into the same objects. `decoded` makes messages of their bytes, `summary` a line of text,
`sequences` says what they belong to, `explanations` what they are for. Nothing is decoded in a node but what may hold a
secret (`redaction`). A node's part is `kbroker.node.explorer`. Begin with `exchange`, then `sequences`.
"""
