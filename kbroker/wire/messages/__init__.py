"""A module for each API, or for several of one subject: requests, responses and their structs, under Kafka's names.

What an API does is in `kbroker.handlers`, its key in `kbroker.wire.registry`. Begin with `groups`, which is small.
A struct's name begins with its API's where two structs of a module differ that have one name in Kafka's definitions.
"""
