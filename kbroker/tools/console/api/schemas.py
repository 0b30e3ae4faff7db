"""The schema registry: subjects, versions, and their change with ``--writes``; values by a schema."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final
from urllib.parse import quote

from kbroker.client.records_io.json_types import Json
from kbroker.client.schemas.encoder import Writer, framed, writer_of
from kbroker.client.schemas.registry import SchemaRegistry
from kbroker.client.schemas.wire_format import RegistryRefused, UnfitValue
from kbroker.tools.console.call import Call, RequestRefused

_AT_ONCE: Final = 8
"""Questions that are put to the registry at once."""

LEVELS: Final = ("BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE", "NONE")


def _registry(call: Call) -> SchemaRegistry:
    _ = call.view  # who has not signed in sees nothing of it either
    registry: SchemaRegistry | None = call.console.registry
    if registry is None:
        raise RequestRefused(404, "this console knows no schema registry: start it with --registry URL")
    return registry


def _place(call: Call, *, version: str | None = None) -> str:
    """The address of the subject that is asked for, and of a version of it."""
    subject = f"/subjects/{quote(call.text('subject'), safe='')}/versions"
    return f"{subject}/{quote(version, safe='')}" if version else subject


async def _asked(call: Call, target: str) -> Any:
    registry = _registry(call)
    return await call.compute(lambda: registry.ask(target))


async def list_subjects(call: Call) -> Json:
    """Show a page of subjects, each with its latest version, and with the topics that are named in its name.

    With ``names`` the names alone are told.
    """
    registry = _registry(call)
    wanted, offset, limit = (
        call.text("filter", "").lower(),
        call.number("offset", 0),
        call.number("limit", 50, highest=200),
    )
    found = sorted(each for each in await _asked(call, "/subjects") if wanted in each.lower())
    if call.flag("names"):
        return {"names": found}

    def look(subject: str) -> dict[str, Json]:
        latest = registry.ask(f"/subjects/{quote(subject, safe='')}/versions/latest")
        return {"version": latest["version"], "id": latest["id"], "kind": latest.get("schemaType") or "AVRO"}

    def look_at_all() -> list[dict[str, Json]]:
        shown = found[offset : offset + limit]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return [{"subject": name, **told} for name, told in zip(shown, pool.map(look, shown), strict=True)]

    topics = frozenset(each.name for each in (await call.view.catalogue.get()).all)
    level = (await _asked(call, "/config"))["compatibilityLevel"]
    rows = await call.compute(look_at_all)
    return {
        "rows": [{**row, "topics": topics_of(str(row["subject"]), topics)} for row in rows],
        "total": len(found),
        "level": level,
    }


def topics_of(subject: str, topics: frozenset[str]) -> Json:
    """Topics that a subject's name tells of: ``orders-value``, or ``orders-shop.Order``, for orders."""
    ends = [place for place, letter in enumerate(subject) if letter == "-"]
    found: list[Json] = [name for name in (subject[:end] for end in reversed(ends)) if name in topics]
    return found[:1]


async def describe_subject(call: Call) -> Json:
    """Show a subject: its versions, what they have to be compatible with, and the topics that its name tells of."""
    registry, subject = _registry(call), call.text("subject")
    versions = await _asked(call, _place(call))
    everywhere = (await _asked(call, "/config"))["compatibilityLevel"]
    topics = frozenset(each.name for each in (await call.view.catalogue.get()).all)

    def own_level() -> str | None:
        try:
            return str(registry.ask(f"/config/{quote(subject, safe='')}")["compatibilityLevel"])
        except RegistryRefused:
            return None  # it has none of its own

    return {
        "subject": subject,
        "versions": versions,
        "level": await call.compute(own_level),
        "everywhere": everywhere,
        "topics": topics_of(subject, topics),
    }


async def describe_schema(call: Call) -> Json:
    """Show one version of a subject, with its text, and what it refers to."""
    found = await _asked(call, _place(call, version=call.text("version")))
    text = str(found["schema"])
    kind = found.get("schemaType") or "AVRO"
    if kind != "PROTOBUF":
        try:
            text = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
        except ValueError:
            pass  # a name alone is a schema of Avro, too
    references = found.get("references") or []
    return {"version": found["version"], "id": found["id"], "kind": kind, "text": text, "references": references}


# --- Changes --------------------------------------------------------------------------------------------------------


def _document(call: Call) -> dict[str, Any]:
    try:
        references = json.loads(call.text("references", "") or "[]")
    except ValueError:
        references = None
    if not isinstance(references, list):
        raise RequestRefused(400, 'references are a JSON list of {"name": ..., "subject": ..., "version": ...}')
    kind = call.choice("kind", ("AVRO", "JSON", "PROTOBUF"), "AVRO")
    return {"schema": call.text("text"), "schemaType": kind, "references": references}


async def check_schema(call: Call) -> Json:
    """Tell whether a schema could be the next version of a subject, by the subject's own level; nothing is changed."""
    registry, document = _registry(call), _document(call)
    subject = quote(call.text("subject"), safe="")

    def check() -> Json:
        try:
            level = registry.ask(f"/config/{subject}?defaultToGlobal=true")["compatibilityLevel"]
            registry.ask(_place(call))
        except RegistryRefused as refused:
            if refused.status != 404:
                raise
            return {"compatible": True, "messages": ["It is the first version of its subject."]}
        place = "versions" if str(level).endswith("TRANSITIVE") else "versions/latest"
        told = registry.ask(f"/compatibility/subjects/{subject}/{place}?verbose=true", document=document)
        return {"compatible": bool(told["is_compatible"]), "level": level, "messages": told.get("messages") or []}

    return await call.compute(check)


async def _change(call: Call, action: str, details: Json, change: Callable[[SchemaRegistry], Any]) -> Any:
    registry = _registry(call)
    if call.console.settings.sign_in:
        raise RequestRefused(403, "the registry knows no users of the cluster: it is not changed where users sign in")
    return await call.write(action, call.text("subject"), details, lambda _: change(registry))


async def register_schema(call: Call) -> Json:
    """Register a schema as the next version of a subject."""
    document = _document(call)
    place = _place(call)
    told = await _change(
        call, "register schema", {"type": document["schemaType"]}, lambda each: each.ask(place, document=document)
    )
    return {"done": f"{call.text('subject')} has the schema with id {told['id']}", "id": told["id"]}


async def delete_schema(call: Call) -> Json:
    """Delete a version of a subject, or all of it; ``confirm`` has to be the subject's name. Ids stay readable."""
    subject, version = call.text("subject"), call.text("version", "")
    if call.text("confirm", "") != subject:
        raise RequestRefused(400, "the name that was typed is not the subject's")
    place = _place(call, version=version).removesuffix("" if version else "/versions")
    await _change(call, "delete schema", {"version": version}, lambda each: each.ask(place, method="DELETE"))
    return {"done": f"version {version} of {subject} is deleted" if version else f"subject {subject} is deleted"}


async def set_compatibility(call: Call) -> Json:
    """Set what the versions of a subject have to be compatible with; without a level the registry's own holds again."""
    level = call.choice("level", ("", *LEVELS), "")
    place = f"/config/{quote(call.text('subject'), safe='')}"

    def change(registry: SchemaRegistry) -> Any:
        if level:
            return registry.ask(place, method="PUT", document={"compatibility": level})
        return registry.ask(place, method="DELETE")

    await _change(call, "set compatibility", {"level": level}, change)
    return {"done": f"compatibility is {level or 'that of the registry'}"}


# --- Values by a schema ---------------------------------------------------------------------------------------------


def _writer(call: Call, prefix: str = "") -> tuple[int, Writer]:
    """The id of the schema that is asked for, and its writer; it blocks."""
    registry = _registry(call)
    subject, version = call.text(f"{prefix}subject"), call.text(f"{prefix}version", "latest")
    found = registry.ask(f"/subjects/{quote(subject, safe='')}/versions/{quote(version, safe='')}")
    return int(found["id"]), writer_of(registry, int(found["id"]), call.text(f"{prefix}message", ""))


async def show_skeleton(call: Call) -> Json:
    """Show a value to begin with, by a version of a subject, and the messages that a Protobuf file has."""

    def look() -> Json:
        schema_id, writer = _writer(call)
        text = json.dumps(writer.skeleton(), indent=2, ensure_ascii=False)
        return {"id": schema_id, "text": text, "messages": list(writer.messages)}

    return await call.compute(look)


async def encode_by_schema(call: Call, name: str) -> bytes:
    """Returns the bytes of a key or value that is given as JSON; ``RequestRefused`` tells what does not fit."""
    try:
        document = json.loads(call.text(name, ""))
    except (ValueError, RecursionError) as error:
        raise RequestRefused(400, f"the {name} is no JSON: {error}") from None

    def encode() -> bytes:
        schema_id, writer = _writer(call, f"{name}_")
        return framed(schema_id, writer.encode(document))

    try:
        return await call.compute(encode)
    except UnfitValue as error:
        raise RequestRefused(400, f"the {name} does not fit its schema: {error}") from None
