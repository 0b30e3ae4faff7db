"""Pure cores of replication: high watermark and ISR, fetch sessions, delayed operations."""
