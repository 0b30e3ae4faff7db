"""Exchanges as text: a line of a table, and all that is known of one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from kbroker.observe.explorer.exchange import Skipped
from kbroker.observe.explorer.explained import ExplainedExchange, Filter, Story, Tree, explanations, tree_of
from kbroker.observe.explorer.lines import Item
from kbroker.wire.registry import API_KEYS

CLIENT_WIDTH = 20


def line(told: ExplainedExchange) -> str:
    """Time, client, time taken, request and answer, sequences."""
    decoded, exchange = told.decoded, told.decoded.exchange
    at = datetime.fromtimestamp(exchange.at_ms / 1000).strftime("%H:%M:%S.%f")[:-3]
    client = visible(decoded.client_id or "-")
    if len(client) > CLIENT_WIDTH:
        client = client[: CLIENT_WIDTH - 1] + "…"
    took = f"{exchange.took_ms:.1f} ms" if exchange.response is not None else "-"
    steps = "".join(f"  [{step.kind} {step.number}]" for step in told.steps)
    return f"{at}  {client:<{CLIENT_WIDTH}}  {took:>11}  {visible(told.summary)}{steps}"


def heading() -> str:
    """Above the lines."""
    return f"{'TIME':<12}  {'CLIENT':<{CLIENT_WIDTH}}  {'TOOK':>11}  REQUEST -> ANSWER"


def skipped_line(skipped: Skipped) -> str:
    """The number of requests that are not shown."""
    counts = sorted(skipped.counts.items(), key=lambda each: -each[1])
    texts = [f"{count} {API_KEYS[key].name if key in API_KEYS else f'API key {key}'}" for key, count in counts]
    return f"... {sum(skipped.counts.values())} not shown ({', '.join(texts)}): {skipped.why}"


def details(told: ExplainedExchange) -> Iterator[str]:
    """All lines about an exchange."""
    decoded, exchange = told.decoded, told.decoded.exchange
    yield line(told)
    for sentence in explanations(told):
        yield f"    {visible(sentence)}"
    connection = decoded.connection
    if connection is not None:
        software = "" if connection.software == "unknown" else f", {connection.software}"
        place = f"connection {connection.number} from {connection.peer} on {connection.listener}"
        yield f"    {visible(f'{place}: {connection.principal}{software}')}"
    if exchange.is_redacted:
        yield "    secrets were overwritten in the bytes"
    request = tree_of(told)
    assert request is not None
    yield from _tree("request", request)
    response = tree_of(told, response=True)
    if response is None:
        yield f"  no answer: {visible(exchange.end)}"
    else:
        yield from _tree("answer", response)


def _tree(what: str, tree: Tree) -> Iterator[str]:
    cut = f", {tree.missing} of them were cut and are zeros here" if tree.missing else ""
    yield f"  {what}, {tree.size} bytes{cut}"
    for row in tree.rows:
        raw = bytes.fromhex(row["bytes"])
        shown = raw[:8].hex(" ") + (" .." if len(raw) > 8 else "")
        yield f"{row['start']:>8}  {shown:<26}  {'  ' * row['depth']}{visible(row['text'])}".rstrip()
    if tree.problem:
        yield f"          {visible(tree.problem)}"


def text_of(items: Iterable[Item], shown: Filter, *, verbose: bool) -> Iterator[str]:
    """The lines of a saved stream."""
    story = Story()
    if not verbose:
        yield heading()
    for item in items:
        told = story.add(item)
        if isinstance(item, Skipped):
            yield skipped_line(item)
        elif told is not None and shown.shows(told):
            if verbose:
                yield from details(told)
                yield ""
            else:
                yield line(told)


def visible(text: str) -> str:
    """Text of a stranger without what a terminal would obey."""
    return "".join(each if each.isprintable() else f"\\x{ord(each):02x}" for each in text)
