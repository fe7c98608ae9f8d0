"""What MkDocs has to be told about our pages."""

import re

_MARKED_FENCE = re.compile(r"^(\s*```\w+) .*$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: object) -> str:
    """Take the marks for the tests (``no-run``, ``file=...``) off code fences: Python-Markdown knows bare ones only."""
    return _MARKED_FENCE.sub(r"\1", markdown)
