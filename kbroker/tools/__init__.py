"""Tools for people: the command (`cli`), the console in the browser, the doctor, and `kbroker top`.

The client that tools ask a cluster with is `kbroker.client`; a node imports nothing from here. Begin with `cli`: its
table names the module of each command.
"""
