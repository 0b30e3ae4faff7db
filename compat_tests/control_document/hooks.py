"""Hooks of Schemathesis: nobody waits, so that an hour's timeout is not waited for."""

from typing import Any

import schemathesis


@schemathesis.hook
def map_body(context: Any, body: Any) -> Any:
    """Have each wait ask once."""
    if isinstance(body, dict) and isinstance(body.get("timeout"), int | float):
        return body | {"timeout": 0}
    return body
