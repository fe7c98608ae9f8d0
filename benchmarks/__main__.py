"""Run every benchmark, or one: ``python -m benchmarks [--only NAME] [--quick]``."""

import argparse
import inspect
import pkgutil
from importlib import import_module

import benchmarks


def names() -> list[str]:
    """The benchmark modules of this folder."""
    return sorted(module.name for module in pkgutil.iter_modules(benchmarks.__path__) if module.name[0] != "_")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=benchmarks.__doc__)
    parser.add_argument("--only", metavar="NAME", choices=names(), help=f"run one of: {', '.join(names())}")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, for a look")
    options = parser.parse_args()
    for name in [options.only] if options.only else names():
        run = getattr(import_module(f"benchmarks.{name}"), "run", None)
        if run is None:
            continue
        print(f"== {name} ==\n", flush=True)
        text = run(options.quick) if inspect.signature(run).parameters else run()
        if text:
            print(text)
        print(flush=True)


if __name__ == "__main__":
    main()
