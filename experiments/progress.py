"""How far a long run is, on stderr: in place on a terminal, a line a minute elsewhere."""

import sys
import time

from noisewise.evaluation.trials import Progress


def told() -> Progress:
    terminal = sys.stderr.isatty()
    began, last, every = time.monotonic(), [0.0], 0.5 if terminal else 60.0

    def tell(done: int, total: int) -> None:
        now = time.monotonic()
        if now - last[0] < every and done < total:
            return
        last[0] = now
        spent = (now - began) / 60.0
        line = f"{done}/{total} trials in {spent:.1f} min, about {spent / done * (total - done):.0f} min left"
        print(line, end="\r" if terminal and done < total else "\n", file=sys.stderr, flush=True)

    return tell
