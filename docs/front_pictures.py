"""The terminals on the front page of the site, as pictures that are sharp at any size."""

from __future__ import annotations

from html import escape

_COLUMNS, _ROWS = 44, 12
_CELL, _LINE, _EDGE, _BAR = 8.4, 20, 14, 26
_COLOURS = {"$": "#8fb4ff", "#": "#8a94a8", "✓": "#7fd69a"}
"""Colour of a line by its first character; others are plain."""

TERMINALS = {
    "test": """
        # test_orders.py
        def test_retried(kafka_broker, kafka_topic,
                         kafka_faults):
            lost = kafka_faults.drop(
                "Produce", when="after", times=1)
            send_orders(kafka_broker, kafka_topic)
            assert lost.hits == 1
            assert no_order_is_there_twice(...)

        $ pytest
        ✓ 1 passed
    """,
    "run": """
        $ kbroker start
        kbroker ready: 127.0.0.1:9092

        # in another terminal, or by any Kafka client
        $ kbroker topic create orders -p 3
        $ echo 'two pizzas' | kbroker produce orders
        $ kbroker consume orders --value-only -n 1
        two pizzas

        # three nodes; with users and TLS: --secure
        $ kbroker up -n 3
    """,
}


def picture(name: str) -> str:
    """Returns the SVG of a terminal."""
    lines = [line.removeprefix(" " * 8) for line in TERMINALS[name].strip("\n").splitlines()][:_ROWS]
    width, height = round(_COLUMNS * _CELL + 2 * _EDGE), _ROWS * _LINE + _BAR + 4
    rows = []
    for number, line in enumerate(lines):
        colour = _COLOURS.get(line[:1], "#e4e9f2")
        at = _BAR + 16 + number * _LINE
        rows.append(f'<text x="{_EDGE}" y="{at}" fill="{colour}" xml:space="preserve">{escape(line)}</text>')
    dots = "".join(f'<circle cx="{_EDGE + 5 + 16 * dot}" cy="14" r="4.5" fill="#3c4760"/>' for dot in range(3))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, \'DejaVu Sans Mono\', monospace" font-size="14">\n'
        f'<rect width="100%" height="100%" rx="8" fill="#1a2234"/>{dots}\n' + "\n".join(rows) + "\n</svg>\n"
    )
