"""Clusters whose nodes are killed, paused and stopped under stock clients, and a checker of what the clients saw."""
