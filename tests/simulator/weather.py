"""How bad things are: the chances of each fault, and the count of those that struck."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from random import Random


@dataclass(frozen=True)
class Weather:
    """Probabilities: of a message's fate, of a node's death at a message, of a party's death in one of its acts."""

    lost_request: float = 0.0
    lost_response: float = 0.0
    duplicated: float = 0.0
    late: float = 0.0
    cut_off: float = 0.0
    replayed: float = 0.0
    node_killed: float = 0.0
    holder_killed: float = 0.0
    coordinator_killed: float = 0.0
    disk_full: float = 0.0

    @classmethod
    def of(cls, chance: Random) -> "Weather":
        """From a breeze to a storm; now and then without one or another kind of fault, so that the rest goes on."""
        strength = chance.choice((0.3, 0.6, 1.0, 1.5))
        usual = cls(0.06, 0.06, 0.1, 0.06, 0.04, 0.1, 0.08, 0.4, 0.4, 0.1)
        return replace(
            usual,
            **{
                field.name: getattr(usual, field.name) * strength if chance.random() < 0.8 else 0.0
                for field in fields(cls)
            },
        )


CALM = Weather()
FATES = ("lost_request", "lost_response", "duplicated", "late", "cut_off")


class Tally(Counter[str]):
    """How often each fault struck, and how rounds ended; ``tell`` is called with every step of the story, in words."""

    def __init__(self, tell: Callable[[str], None] = lambda line: None) -> None:
        super().__init__()
        self.tell = tell

    def strike(self, fault: str, what: str = "") -> None:
        self[fault] += 1
        self.tell(f"  ! {fault} {what}")

    def __iadd__(self, other: "Tally") -> "Tally":  # type: ignore[override,misc]
        self.update(other)
        return self

    def table(self) -> str:
        return "\n".join(f"{name:<44}{count:>8,}" for name, count in sorted(self.items()))
