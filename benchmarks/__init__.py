"""Speed and memory, as ratios side by side with a peer in one run: ``python -m benchmarks``.

A benchmark is a module of this package with a function ``run(quick)``. It prints as it goes, or returns text to print.
"""

from collections.abc import Sequence


def text_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str] = ()) -> str:
    """A plain table: the first column to the left, the others to the right."""
    widths = [max(len(row[position]) for row in (header, *rows)) for position in range(len(header))]
    lines = [title, "", *(_line(row, widths) for row in (header, ["-" * width for width in widths], *rows))]
    return "\n".join([*lines, *([""] if notes else []), *notes])


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = (f"{cell:{'<' if not position else '>'}{widths[position]}}" for position, cell in enumerate(cells))
    return "  " + "  ".join([first, *others]).rstrip()
