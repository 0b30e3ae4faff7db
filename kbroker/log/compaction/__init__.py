"""Compaction: which log is cleaned next, and how its segments are written anew."""
