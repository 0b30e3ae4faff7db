"""Hooks of Schemathesis: nobody waits, so that an hour's timeout is not waited for."""

from typing import Any

import schemathesis

MOST_SECONDS = 86_400


@schemathesis.hook
def map_body(context: Any, body: Any) -> Any:
    """Have each wait ask once; a timeout that is wrong stays wrong."""
    timeout = body.get("timeout") if isinstance(body, dict) else None
    is_right = isinstance(timeout, int | float) and not isinstance(timeout, bool) and 0 <= timeout <= MOST_SECONDS
    return body | {"timeout": 0} if is_right else body
