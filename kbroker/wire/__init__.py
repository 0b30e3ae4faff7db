"""L1: bytes to objects and back. No clock, no IO."""
