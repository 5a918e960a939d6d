"""
Run benchmarks: `python -m bench`, or `python -m bench startup fleet` for some; `--nodes N` is the size of `simulate` and `storm`.

Each module here with a `measure()` is one. Exit status 1 when a budget does not hold, so that a person sees it; the tests
never ask, for machines are noisy.
"""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import sys

import bench

SHELL_ONLY = ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")
"""Without them a command reads compiled modules and writes its output in blocks, as it does where it is installed."""


def main(arguments: list[str]) -> int:
    """Run and print; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Run benchmarks.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="Benchmarks to run. [all]")
    parser.add_argument(
        "--nodes", type=int, metavar="N", help="Size of the fleet of `simulate` [20000] and `storm` [10000]."
    )
    options = parser.parse_args(arguments)
    chosen: list[str] = options.names
    for variable in SHELL_ONLY:
        os.environ.pop(variable, None)
    if options.nodes is not None:
        os.environ["BENCH_NODES"] = str(options.nodes)  # modules read their settings when they are imported
    names = [m.name for m in pkgutil.iter_modules(bench.__path__) if m.name not in ("__main__", "measure")]
    if unknown := set(chosen) - set(names):
        print(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(names)}", file=sys.stderr)
        return 1
    over = 0
    for name in chosen or names:
        module = importlib.import_module(f"bench.{name}")
        if not hasattr(module, "measure"):
            continue
        print(f"{name}: {(module.__doc__ or '').strip().splitlines()[0]}", flush=True)
        try:
            lines = module.measure()
        except (RuntimeError, OSError) as err:
            print(f"     could not be measured: {err}")
            over += 1
            continue
        for line in lines:
            over += not line.holds
            print(f"  {line}", flush=True)
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
