"""The OpenAPI description of a node, by hand: what each route takes and answers."""

from typing import Any

DESCRIPTION: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "noisewise compute node", "version": "1"},
    "paths": {},
}
