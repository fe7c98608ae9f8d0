"""The shared words of the servers' OpenAPI descriptions: keys, signed documents, errors, operations.

A description is written by hand and complete: every answer that a route can give, refusals too, is declared.
"""

from collections.abc import Mapping, Sequence
from typing import Any

Schema = dict[str, Any]

BYTES, JSON = "application/octet-stream", "application/json"
HEX: Schema = {"type": "string", "pattern": "^[0-9a-f]{64}$"}

_REFUSALS = {
    400: "The message is malformed, or does not belong here.",
    403: "A signature does not hold, or the signer may not do this.",
    404: "There is nothing here.",
    405: "This method is not taken here.",
    408: "The body took too long.",
    409: "The round is in a phase in which this can't be done, or something else was taken before.",
    410: "The round takes no envelopes any more.",
    413: "The body is too large.",
    415: "The body is of another media type.",
    429: "Too many requests; Retry-After says how many seconds to wait.",
    500: "Something unexpected failed inside.",
    502: "A node behind the relay can't be reached; try again.",
    503: "The store does not answer, or too much is on its way; try again.",
    507: "The disk is full; nothing was taken.",
}
# what any route may answer
ALWAYS = (429, 500, 503)
# what any route with a body may answer
WITH_BODY = (400, 403, 404, 408, 409, 413, 415, 507)


def closed(**properties: Schema) -> Schema:
    """An object with exactly these keys."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def signed(kind: str, body: Schema) -> Schema:
    """A signed document (protocol/signed.py)."""
    signature = {"type": "string", "pattern": "^[0-9a-f]{128}$"}
    return closed(kind={"const": kind}, body=body, signer=HEX, signature=signature)


def parameter(name: str, what: str) -> Schema:
    return {"name": name, "in": "path", "required": True, "description": what, "schema": HEX}


def operation(
    summary: str,
    name: str,
    answers: Mapping[int, Schema | None],
    refusals: Sequence[int] = (),
    *,
    body: Schema | None = None,
    media: str = JSON,
) -> Schema:
    """One method of a path. ``answers`` has the schema of each success; ``refusals`` come on top of ``ALWAYS``."""
    responses: dict[str, Any] = {}
    for status, schema in answers.items():
        responses[str(status)] = {"description": "Done.", "content": {JSON: {"schema": schema or {}}}}
    for status in sorted({*refusals, *ALWAYS} - set(answers)):
        responses[str(status)] = {"$ref": f"#/components/responses/{status}"}
    out: Schema = {"summary": summary, "operationId": name, "responses": responses}
    if body is not None:
        out["requestBody"] = {"required": True, "content": {media: {"schema": body}}}
    return out


def description(title: str, words: str, paths: Mapping[str, Schema], schemas: Mapping[str, Schema]) -> Schema:
    """The whole, with /healthz, /metrics and /openapi.json, which every server has."""
    text = {"description": "Text.", "content": {"text/plain": {"schema": {"type": "string"}}}}
    metrics = operation("Numbers for Prometheus", "metrics", {})
    metrics["responses"]["200"] = text
    health = closed(status={"type": "string"})
    shared = {
        "/healthz": {"get": operation("Whether the store answers", "healthz", {200: health, 503: health})},
        "/metrics": {"get": metrics},
        "/openapi.json": {"get": operation("This description", "openapi", {200: {"type": "object"}})},
    }
    error = closed(error={"type": "string"}, kind={"type": "string"})
    refused = {
        str(status): {"description": words, "content": {JSON: {"schema": {"$ref": "#/components/schemas/error"}}}}
        for status, words in _REFUSALS.items()
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": "1", "description": words},
        "paths": {**shared, **paths},
        "components": {"schemas": {"error": error, **schemas}, "responses": refused},
    }


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}
