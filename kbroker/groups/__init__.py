"""Consumer groups: pure cores of the group coordinator (classic protocol and committed offsets)."""
