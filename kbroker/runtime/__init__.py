"""The world of a node: clock, network, disk and random numbers (`env`), deadlines, rounds of the poller, ports.

What a node does with the world is in `kbroker.node`; the simulation puts a world of its own in the place of `env`.
Begin with `env.Env`, then `round`, which gathers what the connections of one turn of the event loop bring.
"""
