"""The log dirs of a node: what is in each, their checkpoints, and moves between them."""
