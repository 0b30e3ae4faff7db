"""The text format of Prometheus, version 0.0.4: a line for each value, with what the name means before the first."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from math import nan
from typing import Final

from kbroker.observe.metrics.dialect import Dialect, Kind
from kbroker.observe.metrics.family import Family

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

QUANTILES = ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")
"""The quantiles of a summary, as the JMX exporter has them."""

Labels = tuple[str, ...]
"""Values of the family's labels, in their order."""

Sample = tuple[Labels, float]

NOTHING: Final[Sample] = ((), nan)
"""No sample: much was looked at, and whoever takes samples lets others have a turn."""

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def head(family: Family, dialect: Dialect) -> str:
    """The lines before a family's values: HELP and TYPE.

    Readers take the name of a counter to end with ``_total``, and change others: those have no type.
    """
    name = family.names[dialect]
    counts = family.kind is Kind.COUNTER or (family.kind is Kind.IDLE and dialect is Dialect.REPORTER)
    kind = ("counter" if name.endswith("_total") else "untyped") if counts else "gauge"
    return f"# HELP {name} {family.help}\n# TYPE {name} {kind}\n"


def line(name: str, labels: Mapping[str, str] | Iterable[tuple[str, str]], value: float) -> str:
    """A value with its labels."""
    pairs = labels.items() if isinstance(labels, Mapping) else labels
    written = ",".join(f'{label}="{text.translate(_ESCAPES)}"' for label, text in pairs)
    number = str(int(value)) if float(value).is_integer() else repr(float(value))  # clients can make it infinite
    return f"{name}{{{written}}} {number}\n" if written else f"{name} {number}\n"


def lines(family: Family, dialect: Dialect, samples: Iterable[Sample]) -> Iterator[str]:
    """A family's values, an empty line for ``NOTHING``. A label without a value is left out.

    Confluent's rules write the names of labels in lower case.
    """
    name, labels = family.names[dialect], family.labels
    if dialect is Dialect.CONFLUENT:
        labels = tuple(label.lower() for label in labels)
    for sample in samples:
        if sample is NOTHING:
            yield ""
            continue
        values, value = sample
        yield line(name, [(label, text) for label, text in zip(labels, values, strict=True) if text], value)


_VALUE = re.compile(r"^(?!#)([\w:]+)(\{?)", re.MULTILINE)
_HELP: Final = "# HELP "
_BLOCK = re.compile(f"^{_HELP}", re.MULTILINE)

Others = dict[str, list[str]]
"""Pages of other nodes by the names of families: the lines before the values, then the values of each page."""


def labelled(text: str, node: str) -> str:
    """Lines of a page with the label ``node`` on each value."""
    return _VALUE.sub(lambda found: f'{found[1]}{{node="{node}"{"," if found[2] else "}"}', text)


def by_family(pages: Iterable[str]) -> Others:
    """Pages of other nodes, taken apart for ``joined``."""
    found: Others = {}
    for page in pages:
        for block in _BLOCK.split(page)[1:]:
            head_end = block.find("\n", block.find("\n") + 1) + 1
            name = block.partition(" ")[0]
            found.setdefault(name, [_HELP + block[:head_end]]).append(block[head_end:])
    return found


def joined(own: Iterable[str], others: Others) -> Iterator[str]:
    """A page's lines and those of other pages, all values of a family together. ``others`` is used up."""
    name = ""
    for text in own:
        if text.startswith(_HELP):
            yield from others.pop(name, ())[1:]
            name = text.split(" ", 3)[2]
        yield text
    yield from others.pop(name, ())[1:]
    for rest in others.values():
        yield from rest
