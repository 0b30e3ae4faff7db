"""A module for each API: its request, its response and the structs inside them, under Kafka's names.

What an API does is in `kbroker.handlers`, its key in `kbroker.wire.registry`. Begin with `list_groups`, which is small.
"""
