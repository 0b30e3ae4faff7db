"""Records decoded by their schemas and judged by a filter, in this order. Pure but for the registry that it asks."""

from __future__ import annotations

from kbroker.client.records_io.record_filter import Predicate, Subject
from kbroker.client.schemas.decoder import Decoded, RecordDecoder
from kbroker.wire.record_batch import Record


class Sieve:
    """Lets wanted records through: ``fits`` judges them as ``decoder`` decodes them; None leaves all as they are."""

    def __init__(self, fits: Predicate | None = None, decoder: RecordDecoder | None = None) -> None:
        self.fits = fits
        self.decoder = decoder
        self.undecoded = 0
        """Keys and values that could not be decoded."""
        self.first_problem = ""
        """The first of them, in one line."""

    @property
    def takes_all(self) -> bool:
        """Whether all records come through as they are."""
        return self.fits is None and self.decoder is None

    def sift(self, partition: int, record: Record) -> Decoded | None:
        """The record decoded, or None if it does not fit."""
        found = Decoded(record) if self.decoder is None else self.decoder.decode(record)
        if self.fits is not None and not self.fits(Subject(partition, found.record)):
            return None
        for part, note in (("key", found.key), ("value", found.value)):
            if note is not None and note.error is not None:
                self.undecoded += 1
                self.first_problem = (
                    self.first_problem or f"the {part} at offset {record.offset} of partition {partition}: {note.error}"
                )
        return found
