"""``--resume`` of ``import`` and ``replay``: a copy that stops keeps its place in a file, and another goes on."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kbroker.errors import FatalError
from kbroker.tools.cli.common import complain

if TYPE_CHECKING:
    from kbroker.client import Client
    from kbroker.client.producer import Producer
    from kbroker.client.records_io.copy_position import CopyPosition, CopyProgress
    from kbroker.tools.cli.record_spans import Limits

RESUME_HELP: Final = """\
A copy that stops in the middle, also by Ctrl-C, says where its place is kept: the same command with --resume FILE goes
on from there and stores nothing twice, unless --acks or --no-idempotence let brokers forget what they have."""

Kept = tuple[Path | None, str]
"""The file that keeps a place, None if it could not be written, and a line that says how to go on."""

_MOST_BYTES: Final = 256 << 20
_NAMES: Final = 100
_DAY: Final = 86_400
"""Seconds for which brokers know a producer that sends nothing, unless ``producer.id.expiration.ms`` says otherwise."""


def add_resume_argument(parser: argparse._ActionsContainer) -> None:
    """``--resume``."""
    parser.add_argument(
        "--resume", type=Path, metavar="FILE", help="go on where a copy has stopped that kept its place in this file"
    )


@contextmanager
def resuming_of(arguments: argparse.Namespace, task: str) -> Iterator[Resuming]:
    """The place of a copy, from which no other process can go on until the block ends.

    ``task`` is a line that says what is copied where to. ``FatalError`` if there is no place of this copy.
    """
    if arguments.resume is None:
        yield Resuming(arguments, task, None)
        return
    with _held(arguments.resume) as begun:
        yield Resuming(arguments, task, begun)


class Resuming:
    """The place of a copy: read at its beginning, kept if it does not come to its end."""

    def __init__(self, arguments: argparse.Namespace, task: str, begun: CopyPosition | None) -> None:
        """See `resuming_of`."""
        from kbroker.client.records_io.copy_position import CopyProgress

        self._topic = arguments.topic
        self._command = arguments.command
        self._file: Path | None = arguments.resume
        self._task = task
        self._topic_ids = ""
        self.begun = begun
        if self.begun is not None and self.begun.task != task:
            raise FatalError(f"{self._file} is the place of another copy: {self.begun.task}")
        if self.begun is not None and self.begun.known_again:
            if arguments.no_idempotence or arguments.acks not in ("all", "-1"):
                raise FatalError(f"{self._file} is of an idempotent producer: leave out --acks and --no-idempotence")
        self.course: CopyProgress = CopyProgress(self.begun)

    def check_topics(self, client: Client, *sources: str) -> None:
        """``FatalError`` if the target, or a topic that is read, is not that of the first part of the copy."""
        from kbroker.client.records_io.copy_position import ids_of, made_anew

        names = (self._topic, *sources)
        self._topic_ids = ids_of(client, names)
        if self.begun is not None and (name := made_anew(names, self.begun.topic_ids, self._topic_ids)):
            raise FatalError(f"topic {name} is another than that of {self._file}: it was made anew since")

    def left(self) -> Limits | None:
        """Between which offsets an earlier replay has left records; None if there is none."""
        starts = self.course.left
        if not starts:
            return None
        from kbroker.tools.cli.record_spans import Limits

        return Limits(starts, {partition: self.course.begun_at[partition] for partition in starts})

    def end(self, producer: Producer, ends: Mapping[int, int], *, is_whole: bool) -> Kept | None:
        """Keep the place of a copy that is not whole, as ``stopped`` does; remove the one of a copy that is."""
        if not is_whole:
            return self.stopped(producer, ends)
        if self._file is not None:
            self._file.unlink(missing_ok=True)
        return None

    def stopped(self, producer: Producer, ends: Mapping[int, int]) -> Kept:
        """Keep the place."""
        place = self.course.place(producer, self._task, self._topic_ids, ends)
        try:
            file = self._write(place.dump() + "\n")
        except FatalError as error:
            return None, f"{error}: the place where it stopped is lost"
        line = f"to go on where it stopped, give the same command with --resume {file}"
        if place.may_be_doubled:
            line += f"; {place.may_be_doubled:,} records may be stored twice then, for brokers do not know them again"
        return file, line

    def _write(self, text: str) -> Path:
        """Write the file, which gets a name of its own if it has none. ``FatalError``."""
        from kbroker.tools.cli.certificate_files import write_secret

        if self._file is not None:
            write_secret(self._file, text)
            return self._file
        file = _new_file(f"kbroker-{self._command}-{self._topic}")
        try:
            write_secret(file, text)
        except FatalError:
            file.unlink(missing_ok=True)
            raise
        return file


@contextmanager
def _held(file: Path) -> Iterator[CopyPosition]:
    """The place in a file, which is locked until the block ends."""
    from kbroker.client.records_io.copy_position import load_copy_position
    from kbroker.tools.cli.partial_file import Taken, lock

    with ExitStack() as stack:
        try:
            opened = stack.enter_context(file.open("r+b"))
            lock(opened.fileno())
            if not os.path.samestat(os.fstat(opened.fileno()), file.stat()):
                raise Taken
            place = load_copy_position(opened.read(_MOST_BYTES))
            age = time.time() - os.fstat(opened.fileno()).st_mtime
        except Taken:
            raise FatalError(f"another process goes on from {file}") from None
        except OSError as error:
            raise FatalError(f"cannot read {file}: {error.strerror}") from None
        except ValueError as error:
            raise FatalError(f"{file}: {error}") from None
        if place.known_again and age > _DAY:
            complain(
                f"{file} is more than a day old: {place.known_again:,} records may be stored twice if brokers have"
                " forgotten who sent them (producer.id.expiration.ms)"
            )
        yield place


def _new_file(base: str) -> Path:
    """A new, empty file of the present directory: several copies that stop at once have a name each."""
    for number in range(_NAMES):
        name = Path(f"{base}{f'-{number}' if number else ''}.place")
        try:
            os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            continue
        except OSError as error:
            raise FatalError(f"cannot write {name}: {error.strerror}") from None
        return name
    raise FatalError(f"cannot write {base}.place: it is there, and {_NAMES - 1} more")
