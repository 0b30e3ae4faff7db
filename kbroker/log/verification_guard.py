"""Questions to the transaction coordinator whether a partition is in a producer's transaction (KIP-890)."""

from __future__ import annotations


class VerificationGuard:
    """Stands for one question to the transaction coordinator: is the partition in the transaction (KIP-890)?

    Compared by identity: an answer overtaken by the end of its transaction does not fit the next one.
    """

    __slots__ = ()


class VerificationState:
    """A producer that waits for verification, and the lowest sequence it has tried with."""

    __slots__ = ("epoch", "guard", "lowest_sequence", "supports_epoch_bump", "timestamp")

    def __init__(self, timestamp: int, sequence: int, epoch: int, supports_epoch_bump: bool) -> None:
        self.timestamp = timestamp
        self.guard = VerificationGuard()
        self.lowest_sequence = sequence
        self.epoch = epoch
        self.supports_epoch_bump = supports_epoch_bump

    def note(self, sequence: int, epoch: int) -> None:
        """A lower sequence must come first when retried, so higher ones are to be refused until then."""
        if epoch > self.epoch:
            self.epoch = epoch
            self.lowest_sequence = sequence
        elif epoch == self.epoch and sequence < self.lowest_sequence:
            self.lowest_sequence = sequence
