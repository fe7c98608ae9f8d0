"""One file a method, each a frozen dataclass of its options with ``sample(problem, prior, run) -> Draws``."""
