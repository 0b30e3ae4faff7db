"""Trio: sockets, tasks, and the assembly of a node from the layers below."""
