"""Clients' metrics (KIP-714): subscriptions, the clients that push, and the OTLP payload; pure, without Trio or I/O.

A node's part is `kbroker.node.telemetry`. Begin with `subscriptions`.
"""
