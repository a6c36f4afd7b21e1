"""The OpenAPI document, made of the endpoints' own signatures."""

import re
from collections.abc import Iterable
from html import escape
from typing import Any

import msgspec

from towline.server.endpoints import Endpoint
from towline.server.streams import Bytes, Connected, Events, Frames, Text
from towline.version import __version__

_REF = "#/components/schemas/{name}"
_ERROR: dict[str, Any] = {
    "type": "object",
    "required": ["error", "exit"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "text", "hint"],
            "properties": {name: {"type": "string"} for name in ("code", "text", "hint")},
        },
        "exit": {"type": "integer"},
    },
}
_STREAMS = (Frames, Bytes, Connected, Events, Text)


def document(endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    """Describe every endpoint: its parameters, its body, its answer, and how it refuses."""
    endpoints = list(endpoints)
    kinds = [kind for one in endpoints for kind in (one.body, one.query) if kind is not None]
    kinds += [one.answer for one in endpoints if one.answer not in _STREAMS]
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_REF)
    by_kind = dict(zip(map(id, kinds), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for one in endpoints:
        path = re.sub(r":\w+}", "}", one.path)
        paths.setdefault(path, {})[one.method.lower()] = _operation(one, by_kind, components)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Towline", "version": __version__},
        "paths": paths,
        "components": {"schemas": {**components, "Error": _ERROR}},
    }


def _operation(one: Endpoint, by_kind: dict[int, Any], components: dict[str, Any]) -> Any:
    operation: dict[str, Any] = {
        "operationId": f"{one.serve.__module__.rpartition('.')[2]}.{one.name}",
        "summary": one.summary.partition("\n\n")[0].replace("\n", " "),
        "parameters": [*_in_path(one), *_in_query(one, by_kind, components)],
        "responses": {"200": _answer(one, by_kind), "default": _refusal()},
    }
    if one.body is not None:
        content = {"application/json": {"schema": by_kind[id(one.body)]}}
        operation["requestBody"] = {"content": content}
    return operation


def _in_path(one: Endpoint) -> list[dict[str, Any]]:
    kinds = {int: {"type": "integer", "minimum": 0}, str: {"type": "string", "minLength": 1}}
    return [
        {"name": name, "in": "path", "required": True, "schema": kinds[kind]}
        for name, kind in one.in_path.items()
    ]


def _in_query(
    one: Endpoint, by_kind: dict[int, Any], components: dict[str, Any]
) -> list[dict[str, Any]]:
    if one.query is None:
        return []
    schema = by_kind[id(one.query)]
    if "$ref" in schema:
        schema = components[schema["$ref"].rpartition("/")[2]]
    required = schema.get("required", ())
    return [
        {"name": name, "in": "query", "required": name in required, "schema": about}
        for name, about in schema["properties"].items()
    ]


def _answer(one: Endpoint, by_kind: dict[int, Any]) -> dict[str, Any]:
    if one.answer in _STREAMS:
        return {"description": one.answer.__doc__, "content": {one.answer.media_type: {}}}
    schema = by_kind[id(one.answer)]
    return {"description": "It was done.", "content": {"application/json": {"schema": schema}}}


def _refusal() -> dict[str, Any]:
    schema = {"$ref": _REF.format(name="Error")}
    return {"description": "Why not.", "content": {"application/json": {"schema": schema}}}


def page(endpoints: Iterable[Endpoint]) -> str:
    """Say for people what there is."""
    rows = "".join(
        f"<tr><td><code>{one.method} {escape(one.path)}</code><td>{escape(one.summary)}</tr>"
        for one in sorted(endpoints, key=lambda one: (one.path, one.method))
    )
    title = f"The API of Towline {__version__}"
    return (
        f"<!doctype html><meta charset=utf-8><title>{title}</title><h1>{title}</h1>"
        "<p>For programs: <a href=/v1/schema/openapi.json>openapi.json</a></p>"
        f"<table>{rows}</table>"
    )
