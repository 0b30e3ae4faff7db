"""``kafka-console-producer``: the lines of standard input as records, sent as ``kbroker produce`` sends them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from kbroker.tools.cli import build_parser
from kbroker.tools.cli.kafka_tools.options import OF_ALL, Kind, Options, UsageError

if TYPE_CHECKING:
    from kbroker.client.records_io.items import BadLine, Item
    from kbroker.client.records_io.line_records import InputOptions

READER_PROPERTIES: Final = ("parse.key", "key.separator", "null.marker")

OPTIONS: Final = {
    **OF_ALL,
    **dict.fromkeys(("topic", "producer.config", "request-required-acks", "compression-codec"), Kind.VALUE),
    **dict.fromkeys(("property", "reader-property"), Kind.REPEATED),
    "sync": Kind.FLAG,
}

TRANSLATED: Final = {
    "bootstrap-server": "--bootstrap-server",
    "request-required-acks": "--acks",
    "compression-codec": "--compression",
}
"""Option -> that of ``kbroker produce`` which means the same."""

_LINGER_SECONDS: Final = 0.1


def run(options: Options) -> int:
    """Send everything; 1 if something could not be stored. Every record is waited for, with ``--sync`` or without."""
    from kbroker.tools.cli.line_input import LineInput
    from kbroker.tools.cli.sending import check_topic_name, opened_input, store

    options.required("bootstrap-server")
    how = _input_options(options)
    words = ["produce", options.required("topic"), "--quiet"]
    config = options.config_file()
    if config is not None:
        words.append(f"--command-config={config}")
    for name, translated in TRANSLATED.items():
        value = options.value(name)
        if value is not None:
            words.append(f"{translated}={value}")
    parser, rest = build_parser(words)
    try:
        arguments = parser.parse_args(rest)
    except SystemExit:  # it has said why
        return 1
    check_topic_name(arguments.topic)
    with opened_input("-") as (descriptor, _):
        return store(
            arguments,
            lambda on_idle: LineInput(descriptor, on_idle, _LINGER_SECONDS, lambda lines: records(lines, how)),
            size=None,
            shows_progress=False,
        )


def _input_options(options: Options) -> InputOptions:
    from kbroker.client.records_io.line_records import InputOptions

    given = options.properties("property", READER_PROPERTIES)
    given |= options.properties("reader-property", READER_PROPERTIES)
    with_key = given.get("parse.key", "").strip().lower() == "true"
    marker = given.get("null.marker")
    if with_key and marker is not None:
        raise UsageError("null.marker together with parse.key is not served in kbroker's image")
    return InputOptions(
        key_separator=given.get("key.separator", "\t").encode() if with_key else None,
        null_value=None if marker is None else marker.encode(),
    )


def records(lines: Iterable[bytes], how: InputOptions) -> Iterator[Item | BadLine]:
    """The records of some lines, up to one that has none. A carriage return ends a line, too, as for Java."""
    from kbroker.client.records_io.line_records import read_lines

    for item in read_lines((part for line in lines for part in line.removesuffix(b"\r").split(b"\r")), how):
        yield item
        if len(item) == 2:
            return
