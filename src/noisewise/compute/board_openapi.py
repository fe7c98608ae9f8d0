"""The OpenAPI description of the board: what each route takes and answers."""

from noisewise.compute.openapi import BYTES, HEX, WITH_BODY, Schema, closed, description, operation, parameter, signed
from noisewise.protocol.round import Phase

_TEXT = {"type": "string"}
_COUNT = {"type": "integer", "minimum": 0}
_PHASE = {"enum": [phase.value for phase in Phase]}
_BRIEF: dict[str, Schema] = {
    "id": HEX,
    "study": _TEXT,
    "study_digest": HEX,
    "phase": _PHASE,
    "reason": _TEXT,
    "opened": _TEXT,
    "deadline": _TEXT,
    "holders": _COUNT,
    "needed": {**_COUNT, "description": "The fewest holders that may be summed."},
}
_NODE = closed(
    name=_TEXT,
    url=_TEXT,
    key=HEX,
    phase={"enum": [*_PHASE["enum"], None]},
    holders={"type": ["integer", "null"]},
    problem={**_TEXT, "description": "Why the node says nothing, or empty."},
)
_STANDING = closed(
    **_BRIEF,
    words=_TEXT,
    missing={"type": "array", "items": closed(name=_TEXT, key=HEX)},
    nodes={"type": "array", "items": _NODE},
)
_NAME = {"type": "string", "minLength": 1, "maxLength": 100}
_ENROLMENT = signed("enrolment", closed(name=_NAME, token=_TEXT))

_ROUND = parameter("round", "The hash of the round's task.")
_NODE_KEY = parameter("node", "The node's signing key.")
_HOLDER = parameter("holder", "The holder's signing key.")


def describe(relay: bool) -> Schema:
    """The description of a board with or without its relay."""
    rounds = closed(rounds={"type": "array", "items": closed(**_BRIEF)})
    listing = operation("All rounds, or those of one holder", "rounds", {200: rounds})
    listing["parameters"] = [{"name": "holder", "in": "query", "required": False, "schema": HEX}]
    enrolled = closed(name=_TEXT, key=HEX)
    enrol = operation(
        "Register a holder's key with a one-time token",
        "enrol",
        {200: enrolled, 201: enrolled},
        WITH_BODY,
        body=_ENROLMENT,
    )
    task = signed("task", {"type": "object", "description": "See protocol/task.py."})
    paths: dict[str, Schema] = {
        "/enrolments": {"post": enrol},
        "/rounds": {"get": listing},
        "/rounds/{round}": _get("How far a round is, and who is missing", "standing", _STANDING),
        "/rounds/{round}/task": _get("The signed task", "task", task),
        "/rounds/{round}/release": _get("The pooled release with its evidence", "release", {"type": "object"}),
    }
    if relay:
        passed = closed(relayed=_TEXT)
        forward = operation(
            "Pass a sealed envelope on to a node, and its answer back",
            "relay_envelope",
            {200: passed, 201: passed},
            (*WITH_BODY, 410, 502),
            body={"type": "string", "format": "binary"},
            media=BYTES,
        )
        progress = operation("A node's word on a round", "relay_progress", {200: {"type": "object"}}, (404, 502))
        at = "/relay/{node}/rounds/{round}"
        paths[at] = {"parameters": [_NODE_KEY, _ROUND], "get": progress}
        paths[f"{at}/envelopes/{{holder}}"] = {"parameters": [_NODE_KEY, _ROUND, _HOLDER], "put": forward}
    words = "Who takes part in which round, and what came of it. Everything here is public."
    return description("noisewise board", words, paths, {})


def _get(summary: str, name: str, schema: Schema) -> Schema:
    return {"parameters": [_ROUND], "get": operation(summary, name, {200: schema}, (404,))}
