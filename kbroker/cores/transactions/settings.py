"""The broker configs that the transaction coordinator follows, under Kafka's names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.value_types import dataclass

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """Times in milliseconds; the defaults are Kafka 4.3's."""

    transaction_max_timeout_ms: int = 15 * 60_000
    transactional_id_expiration_ms: int = 7 * 24 * 3_600_000
    abort_timed_out_interval_ms: int = 10_000
    remove_expired_interval_ms: int = 3_600_000
    verifies_partitions: bool = True
    """Whether a batch of a client before version 2 is verified with the coordinator."""
    add_partitions_retry_backoff_ms: int = 20
    add_partitions_retry_backoff_max_ms: int = 100
    """The time that Produce waits at most for the producer's last transaction to be complete."""

    marker_retry_backoff_ms: int = 100
    """The time after which a partition that could not take its marker is asked again (fixed)."""

    @property
    def client_patience_ms(self) -> int:
        """The time that a client's request to add partitions waits for the end of its last transaction.

        It may wait longer than Produce, whose connection has other requests behind it. After CONCURRENT_TRANSACTIONS a
        client tries again only after ``retry.backoff.ms``, a tenth of a second by default.
        """
        return 10 * self.add_partitions_retry_backoff_max_ms

    def allows_timeout(self, timeout_ms: int) -> bool:
        """Whether a transaction may have this timeout (``transaction.max.timeout.ms``)."""
        return 0 < timeout_ms <= self.transaction_max_timeout_ms

    @classmethod
    def from_config(cls, config: BrokerConfig) -> TransactionSettings:
        """The settings of a node's configuration."""
        return cls(
            transaction_max_timeout_ms=config.transaction_max_timeout_ms,
            transactional_id_expiration_ms=config.transactional_id_expiration_ms,
            abort_timed_out_interval_ms=config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            remove_expired_interval_ms=config.transaction_remove_expired_transaction_cleanup_interval_ms,
            verifies_partitions=config.transaction_partition_verification_enable,
            add_partitions_retry_backoff_ms=config.add_partitions_to_txn_retry_backoff_ms,
            add_partitions_retry_backoff_max_ms=config.add_partitions_to_txn_retry_backoff_max_ms,
        )
