"""Pure cores of the group coordinator: committed offsets, and groups of four kinds.

These are classic groups, consumer groups (KIP-848), share groups (KIP-932) and streams groups (KIP-1071).
"""
