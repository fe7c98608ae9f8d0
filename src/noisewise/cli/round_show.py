"""How the coordinator's commands show a round: who is missing, live or once, and what a release rests on."""

import time
from typing import TYPE_CHECKING, Any

from noisewise.cli.show import out

if TYPE_CHECKING:
    from noisewise.compute.coordinator import Coordinator, Standing
    from noisewise.protocol.pooled import Evidence

WATCH_SECONDS = 2.0


def watch(coordinator: "Coordinator", name: str) -> None:
    """Look again and again: one live table on a terminal, a line for each change elsewhere."""
    from rich.live import Live
    from rich.text import Text

    console, before = out(), ""
    with Live(console=console, auto_refresh=False) if console.is_terminal else _NoLive() as live:
        while True:
            standing = coordinator.standing(name)
            names = ", ".join(member.name for member in standing.missing[:20])
            words = standing.in_words() + (f"\nmissing: {names}" if names else "")
            if words != before:
                live.update(Text(words), refresh=True)
                before = words
            if standing.ended or not (standing.missing or standing.silent):
                return
            time.sleep(WATCH_SECONDS)


class _NoLive:
    def __enter__(self) -> "_NoLive":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def update(self, words: Any, refresh: bool) -> None:
        out().print(words, soft_wrap=True)


def facts(standing: "Standing") -> list[tuple[str, str]]:
    task = standing.task
    return [
        ("round", task.id),
        ("study", f"{task.study.name or 'without a name'} ({task.study.digest[:16]}...)"),
        ("deadline", f"{task.deadline:%Y-%m-%d %H:%M} UTC"),
        ("status", standing.in_words()),
    ]


def who_has_it(standing: "Standing") -> tuple[list[str], list[list[str]]]:
    """A table: a holder a row (those that are missing first), a node a column."""
    from noisewise.protocol.progress import Progress

    missing = {member.key for member in standing.missing}
    ordered = sorted(standing.task.members, key=lambda member: member.key not in missing)
    rows = []
    for member in ordered[:50]:
        cells = [
            "?" if not isinstance(node, Progress) else "has it" if member.key in node.holders else "-"
            for node in standing.nodes
        ]
        rows.append([member.name, *cells])
    if len(ordered) > 50:
        rows.append([f"and {len(ordered) - 50:,} more", *("" for _ in standing.nodes)])
    return ["holder", *(card.name for card in standing.task.nodes)], rows


def factor(contributions: int, hidden_by: int) -> str:
    return f"{contributions / hidden_by:.3g}"


def evidence_dict(evidence: "Evidence") -> dict[str, Any]:
    task = evidence.task
    return {
        "round": task.id,
        "study_digest": task.study.digest,
        "coordinator": task.coordinator,
        "nodes": [{"name": card.name, "key": card.key} for card in task.nodes],
        "holders": list(evidence.holders),
        "missing": list(evidence.missing),
    }


def evidence_facts(evidence: "Evidence") -> list[tuple[str, str]]:
    task, crowd = evidence.task, evidence.task.crowd
    return [
        ("round", task.id),
        ("coordinator", task.coordinator),
        *(("node", f"{card.key} {card.name}") for card in task.nodes),
        ("summed", f"{len(evidence.holders):,} of {crowd.holders:,} holders: {', '.join(evidence.holders[:50])}"),
        ("missing", ", ".join(evidence.missing[:50]) or "nobody"),
        ("noise", f"{factor(len(evidence.holders), crowd.hidden_by)} times the variance of one release"),
    ]
