"""Generated parts of the documentation: what stands between two markers of a page is written anew."""

from pathlib import Path


def write_between(page: Path, marker: str, text: str) -> None:
    """Put the text between ``<!-- marker: begin -->`` and ``<!-- marker: end -->``."""
    begin, end = f"<!-- {marker}: begin -->", f"<!-- {marker}: end -->"
    before, found, rest = page.read_text(encoding="utf-8").partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise SystemExit(f"{page} has no markers {begin} and {end} to write between.")
    page.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}", encoding="utf-8")
