"""The privacy statement of a release: what was promised to the people in the table, in numbers and in words."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from noisewise.column import is_finite_number
from noisewise.errors import ReleaseError
from noisewise.layout import BLOCK_WORDS


class BlockStatement(NamedTuple):
    """One block of entries, the share of the budget that it cost, and how far one person can move it."""

    name: str
    share: float
    sensitivity: float


@dataclass(frozen=True)
class Guarantee:
    """What was promised to the people in the table, and the bound that it rests on."""

    adjacency: str
    epsilon: float
    delta: float
    mechanism: str
    blocks: tuple[BlockStatement, ...]
    norm: str
    public_n: bool

    def __post_init__(self) -> None:
        object.__setattr__(self, "blocks", tuple(BlockStatement(*block) for block in self.blocks))
        sizes = {
            "epsilon": [self.epsilon],
            "delta": [self.delta],
            "share": [block.share for block in self.blocks],
            "sensitivity": [block.sensitivity for block in self.blocks],
        }
        for name, numbers in sizes.items():
            if not numbers or not all(is_finite_number(number) and number >= 0 for number in numbers):
                raise ReleaseError(f"The privacy statement's {name} is not a number of at least 0.")
        for name in ("adjacency", "mechanism", "norm"):
            if not isinstance(getattr(self, name), str):
                raise ReleaseError(f"The privacy statement's {name} is not a text.")

    def in_words(self) -> str:
        whom = "replacing one row by any other" if self.adjacency == "replace-one" else "adding or removing one row"
        pure = f"epsilon {self.epsilon:g}" + (f", delta {self.delta:g}" if self.delta else " (pure)")
        count = (
            "" if not (self.public_n and self.adjacency == "add-remove") else "; the number of rows is taken as public"
        )
        return (
            f"{pure}: {whom} changes what could be published, and how probably, by at most this much{count}"
            f"{self._split_in_words()}"
        )

    def _split_in_words(self) -> str:
        if len(self.blocks) == 1:
            return ""
        parts = [f"{block.share:.3g} of it to {BLOCK_WORDS.get(block.name, block.name)}" for block in self.blocks]
        return f"; the budget is split, {', '.join(parts)}"

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "blocks": [list(block) for block in self.blocks]}

    @property
    def sensitivity(self) -> float:
        """That of the first block."""
        return self.blocks[0].sensitivity
