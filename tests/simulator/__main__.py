"""``python -m tests.simulator --rounds 1000``: play the rounds, print the tally; exit 1 at a broken promise."""

import argparse
import time

from tests.simulator.run import play, play_world


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.simulator", description=__doc__)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--world", help="play one world again, by the name that a failure printed, and tell its story")
    options = parser.parse_args()
    begun = time.process_time()
    tally = play_world(options.world, tell=print) if options.world else play(options.seed, options.rounds)
    print(tally.table())
    print(f"{'CPU seconds':<44}{time.process_time() - begun:>8,.0f}")


if __name__ == "__main__":
    main()
