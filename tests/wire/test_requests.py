"""The link from a request to its response, which type checkers read in the declarations."""

from __future__ import annotations

import ast
import inspect
import sys

from kbroker.wire.registry import API_KEYS, ApiDescription
from tests.with_each import with_each


@with_each(API_KEYS.values())
def test_a_request_names_its_response(api: ApiDescription) -> None:
    request, response = api.request, api.response
    tree = ast.parse(inspect.getsource(sys.modules[request.__module__]))
    [declared] = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == request.__name__]
    assert [ast.unparse(base) for base in declared.bases] == [f"Request['{response.__name__}']"]
