"""The OpenAPI description of a node: what each route takes and answers."""

from typing import Any

from noisewise.compute.openapi import BYTES, HEX, WITH_BODY, closed, description, operation, parameter, ref, signed
from noisewise.protocol.round import Phase

_TEXT = {"type": "string"}
_COUNT = {"type": "integer", "minimum": 0}
_HOLDINGS = {"type": "array", "items": {"type": "array", "items": HEX, "minItems": 2, "maxItems": 2}}
_WORDS = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 2**64 - 1}}

_SCHEMAS = {
    "task": signed("task", {"type": "object", "description": "See protocol/task.py; its hash is the round's name."}),
    "card": signed("node-card", closed(name=_TEXT, url=_TEXT, sealing_key=HEX)),
    "freeze": signed("freeze", closed(task=HEX)),
    "abort": signed("abort", closed(task=HEX, reason={"type": "string", "minLength": 1, "maxLength": 300})),
    "manifest": signed("manifest", closed(task=HEX, held=_HOLDINGS)),
    "sum": signed("sum", closed(task=HEX, set=HEX, holders=_COUNT, sum=_WORDS)),
    "status": closed(
        id=HEX,
        phase={"enum": [phase.value for phase in Phase if phase is not Phase.DRAFT]},
        reason=_TEXT,
        deadline=_TEXT,
        holders={"type": "array", "items": HEX, "description": "Whose envelopes are on disk."},
        needed={**_COUNT, "description": "The fewest holders that may be summed."},
    ),
}

_ROUND = parameter("round", "The hash of the round's task.")
_HOLDER = parameter("holder", "The holder's signing key.")
_TOO_EARLY = (404, 409)


def _word(summary: str, kind: str, answer: str) -> dict[str, Any]:
    return {"parameters": [_ROUND], "put": operation(summary, kind, {200: ref(answer)}, WITH_BODY, body=ref(kind))}


def _document(name: str, refusals: tuple[int, ...]) -> dict[str, Any]:
    get = operation(f"The round's signed {name}", f"get_{name}", {200: ref(name)}, refusals)
    return {"parameters": [_ROUND], "get": get}


_PATHS: dict[str, Any] = {
    "/card": {"get": operation("The node's signed card", "card", {200: ref("card")})},
    "/rounds/{round}": {
        "parameters": [_ROUND],
        "get": operation("Where the round stands", "status", {200: ref("status")}, [404]),
        "put": operation(
            "Open a round; 201 if it is new",
            "open",
            {200: closed(id=HEX), 201: closed(id=HEX)},
            WITH_BODY,
            body=ref("task"),
        ),
    },
    "/rounds/{round}/task": _document("task", (404,)),
    "/rounds/{round}/envelopes/{holder}": {
        "parameters": [_ROUND, _HOLDER],
        "put": operation(
            "Send an envelope; 201 if it is new, 200 if these very bytes are stored, and then they are on disk",
            "envelope",
            {200: closed(digest=HEX), 201: closed(digest=HEX)},
            [*WITH_BODY, 410],
            body={"type": "string", "format": "binary"},
            media=BYTES,
        ),
    },
    "/rounds/{round}/freeze": _word("Take no more envelopes; the signed manifest", "freeze", "manifest"),
    "/rounds/{round}/manifest": _document("manifest", _TOO_EARLY),
    "/rounds/{round}/manifests": {
        "parameters": [_ROUND],
        "put": operation(
            "Every node's manifest: agree on who is in all of them, sum once; the signed sum",
            "agree",
            {200: ref("sum")},
            WITH_BODY,
            body=closed(manifests={"type": "array", "items": ref("manifest")}),
        ),
    },
    "/rounds/{round}/sum": _document("sum", _TOO_EARLY),
    "/rounds/{round}/abort": _word("End a round that was not summed", "abort", "status"),
    "/rounds/{round}/release": {
        "parameters": [_ROUND],
        "put": operation(
            "The pooled release; after it the sealed shares are no longer needed",
            "publish",
            {200: ref("status")},
            WITH_BODY,
            body={"type": "object", "description": "A release file (release.py) with its round's evidence."},
        ),
    },
}

DESCRIPTION = description(
    "noisewise compute node",
    "Takes one sealed share of every holder of a round, agrees with the other nodes on the holders, and sums once.",
    _PATHS,
    _SCHEMAS,
)
