"""Tools for people: the command (`cli`), the console in the browser, the doctor, `kbroker top`, and their `diagnosis`.

The client that tools ask a cluster with is `kbroker.client`, not here; a node imports nothing from here. Begin with
`cli`: its table names the module of each command.
"""
