"""Files of a node are damaged, the node starts again, and stock clients read everything; see `__main__.py`."""
