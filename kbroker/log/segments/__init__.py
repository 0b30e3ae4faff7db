"""Segments of a log: their files and indexes, and where an offset or a time is in them."""
