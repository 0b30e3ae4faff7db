"""Kafka's wire protocol: bytes to objects and back. No clock, no IO."""
