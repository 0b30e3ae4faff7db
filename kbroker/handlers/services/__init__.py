"""The seam between the handlers and the node: for each part of the node, what handlers may ask of it.

The node's own classes have these methods and more (``kbroker.node``); handlers are below them and know these protocols
alone. They exist for the type checker: a node that runs does not import these modules. Begin with `partitions`;
`kbroker.handlers.common.context` has the whole of them.
"""
