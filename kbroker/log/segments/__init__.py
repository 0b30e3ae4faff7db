"""Segments of a log: their files and indexes, and where an offset or a time is in them.

What is appended, retained and recovered is decided in `kbroker.log`. Begin with `segment`, then `segment_list`.
"""
