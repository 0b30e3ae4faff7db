"""``--resume`` of ``import`` and ``replay``: a copy that stops keeps its place in a file, and another goes on."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kbroker.cli.common import complain
from kbroker.errors import FatalError
from kbroker.types import uuid_to_str

if TYPE_CHECKING:
    from kbroker.cli.record_spans import Limits
    from kbroker.client import Client
    from kbroker.client.producer import Producer
    from kbroker.records_io.place import Course, Place

RESUME_HELP: Final = """\
A copy that stops in the middle, also by Ctrl-C, says where its place is kept: the same command with --resume FILE goes
on from there and stores nothing twice, unless --acks or --no-idempotence let brokers forget what they have."""

_MOST_BYTES: Final = 256 << 20
_NAMES: Final = 100


def add_resume_argument(parser: argparse._ActionsContainer) -> None:
    """``--resume``."""
    parser.add_argument(
        "--resume",
        type=Path,
        metavar="FILE",
        help="go on where a copy has stopped that kept its place in this file",
    )


class Resuming:
    """The place of a copy: read at its beginning, kept if it does not come to its end."""

    def __init__(self, arguments: argparse.Namespace, task: str) -> None:
        """``task`` is a line that says what is copied where to. ``FatalError`` if the place is of another copy."""
        from kbroker.records_io.place import Course

        self._topic = arguments.topic
        self._command = arguments.command
        self._file: Path | None = arguments.resume
        self._task = task
        self._topic_id = ""
        self.begun: Place | None = None if self._file is None else _read(self._file)
        if self.begun is not None and self.begun.task != task:
            raise FatalError(f"{self._file} is the place of another copy: {self.begun.task}")
        if self.begun is not None and self.begun.needs_producer_ids:
            if arguments.no_idempotence or arguments.acks not in ("all", "-1"):
                raise FatalError(f"{self._file} is of an idempotent producer: leave out --acks and --no-idempotence")
        self.course: Course = Course(self.begun)

    def check_topic(self, client: Client) -> None:
        """``FatalError`` if the target is not the topic that has the first part of the copy."""
        [topic] = client.refresh([self._topic])
        self._topic_id = uuid_to_str(topic.topic_id)
        if self.begun is not None and self.begun.topic_id != self._topic_id:
            raise FatalError(f"topic {self._topic} is another than that of {self._file}: it was made anew since")

    def left(self) -> Limits | None:
        """Between which offsets an earlier replay has left records; None if there is none."""
        starts = self.course.left
        if not starts:
            return None
        from kbroker.cli.record_spans import Limits

        return Limits(starts, {partition: self.course.begun_at[partition] for partition in starts})

    def caught_up(self, producer: Producer) -> int:
        """Note that all that an earlier copy has left was read; how many records are missing, which is told.

        ``ClientError`` if nothing can be done without them.
        """
        producer.finish_unanswered()
        missing = self.course.missing
        if missing:
            complain(f"{missing:,} records that were left when the copy stopped are not there any more")
            self.course.give_up_missing()
        return missing

    def end(self, producer: Producer, ends: Mapping[int, int], *, is_whole: bool) -> tuple[Path, str] | None:
        """Keep the place of a copy that is not whole, as ``stopped`` does; remove the one of a copy that is."""
        if not is_whole:
            return self.stopped(producer, ends)
        if self._file is not None:
            self._file.unlink(missing_ok=True)
        return None

    def stopped(self, producer: Producer, ends: Mapping[int, int]) -> tuple[Path, str]:
        """Keep the place; its file, and a line that says how to go on."""
        place = self.course.place(producer, self._task, self._topic_id, ends)
        text = place.dump() + "\n"
        file = self._file
        if file is None:
            file = _free_name(f"kbroker-{self._command}-{self._topic}")
        from kbroker.cli.certificate_files import write_secret

        write_secret(file, text)
        line = f"to go on where it stopped, give the same command with --resume {file}"
        if place.may_be_doubled:
            line += f"; {place.may_be_doubled:,} records may be stored twice then, for brokers do not know them again"
        return file, line


def _read(file: Path) -> Place:
    from kbroker.records_io.place import load_place

    try:
        with file.open("rb") as opened:
            text = opened.read(_MOST_BYTES)
        return load_place(text)
    except OSError as error:
        raise FatalError(f"cannot read {file}: {error.strerror}") from None
    except ValueError as error:
        raise FatalError(f"{file}: {error}") from None


def _free_name(base: str) -> Path:
    """A file of the present directory that is not there yet."""
    names = [Path(f"{base}{f'-{number}' if number else ''}.place") for number in range(_NAMES)]
    return next((name for name in names if not name.exists() and not name.is_symlink()), names[-1])
