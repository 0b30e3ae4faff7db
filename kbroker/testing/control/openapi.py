"""The OpenAPI document of the control, made of the table that requests are dispatched by."""

from __future__ import annotations

from functools import cache
from typing import Any

from kbroker.testing.control.routes import Verb, verbs
from kbroker.testing.parameters import Parameter, Schema, schema_of, schemas_in
from kbroker.version import __version__

_PROBLEM: Schema = {
    "type": "object",
    "description": "What is wrong, in one line.",
    "properties": {
        "error": {"type": "string"},
        "code": {"type": "string", "description": "Kafka's error, where there is one."},
        "seen": {"type": ["object", "null"], "description": "What a wait has seen last; null if nobody answered it."},
    },
    "required": ["error"],
}
_PROBLEMS = {
    "400": "What is asked is not as it is to be; nothing is changed.",
    "401": "There is a token, and this request has none or another.",
    "404": "There is no such topic, node, group or fault.",
    "409": "It cannot be done as things are now.",
    "413": "The request is too long.",
    "503": "No node answers.",
    "504": "It did not come in time.",
}


@cache
def document() -> dict[str, Any]:
    """The document."""
    schemas: dict[str, Schema] = {"Problem": _PROBLEM}
    paths: dict[str, dict[str, Any]] = {}
    for verb in verbs():
        schemas_in(verb.result, schemas)
        paths.setdefault(verb.path, {})[verb.method.lower()] = _operation(verb)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "kbroker's control",
            "version": __version__,
            "description": "Faults, clocks, nodes, waits: what kbroker.testing does, for tests in any language.",
        },
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{}, {"token": []}],
    }


def _operation(verb: Verb) -> dict[str, Any]:
    summary, _, rest = verb.about.partition("\n\n")
    in_path = verb.in_path
    others = [each for each in verb.parameters if each.name not in in_path]
    operation: dict[str, Any] = {"operationId": verb.name, "summary": summary}
    if rest:
        operation["description"] = rest
    places = [(each, "path") for each in verb.parameters if each.name in in_path]
    if verb.method == "GET":
        places += [(each, "query") for each in others]
    elif others:
        body = {
            "type": "object",
            "properties": {each.name: _described(each) for each in others},
            "required": [each.name for each in others if each.needed],
            "additionalProperties": False,
        }
        needed = any(each.needed for each in others)
        operation["requestBody"] = {"required": needed, "content": {"application/json": {"schema": body}}}
    operation["parameters"] = [
        {"name": each.name, "in": place, "required": each.needed or place == "path", "schema": schema_of(each.kind)}
        for each, place in places
    ]
    operation["responses"] = {"200": _response("It is done.", schema_of(verb.result))} | {
        status: _response(text, {"$ref": "#/components/schemas/Problem"}) for status, text in _PROBLEMS.items()
    }
    return operation


def _described(parameter: Parameter) -> Schema:
    schema = schema_of(parameter.kind)
    return schema if parameter.default is None else schema | {"default": parameter.default}


def _response(text: str, schema: Schema) -> dict[str, Any]:
    return {"description": text, "content": {"application/json": {"schema": schema}}}
