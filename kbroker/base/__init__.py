"""Small things that every room may use and that know of none: rates, an exponential back-off, a lock between processes.

What speaks Trio or opens a socket is in `kbroker.runtime`; error codes and identifiers are in `kbroker.errors` and
`kbroker.types`. Begin with the module whose name you need: none imports another.
"""
