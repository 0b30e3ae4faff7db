"""Variables in a file's properties, as far as every node has to do with them: it looks whether there are any."""

from __future__ import annotations

from collections.abc import Mapping

from kbroker.config.provided import PROVIDERS


def with_provided(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties of a file with values in the places of variables; see `kbroker.config.providers`. `FatalError`."""
    if not properties.get(PROVIDERS, "").strip():
        return dict(properties)
    from kbroker.config.providers import looked_up  # with providers only: few files name any

    return looked_up(properties)
