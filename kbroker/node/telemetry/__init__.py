"""A node's part in KIP-714: it asks clients for metrics, and hands what they push to the receivers of its file.

Subscriptions and the payload are in `kbroker.observe.telemetry`. Begin with `telemetry`.
"""
