"""The shape that all coordinators have in common: pure cores that return records and replies."""
