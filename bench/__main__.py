"""
Run benchmarks: `python -m bench`, or `python -m bench startup fleet` for some. `--nodes N`: the size of `simulate` and `storm`.

Each module in this folder with a function `measure()` is a benchmark. The exit status is 1 if a benchmark fails or a budget is
exceeded. With `--no-budgets`, it is 1 only if a benchmark fails, because the speed of CI machines varies.
"""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import sys

import bench

SHELL_ONLY = ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")
"""Without these variables, a command uses compiled modules and buffers its output, as in an installation."""


def main(arguments: list[str]) -> int:
    """Run and print the benchmarks, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Run benchmarks.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="Benchmarks to run. [all]")
    parser.add_argument(
        "--nodes", type=int, metavar="N", help="Size of the fleet of `simulate` [20000] and `storm` [10000]."
    )
    parser.add_argument(
        "--within", type=float, metavar="S", help="`simulate` starts nothing after S seconds."
    )
    parser.add_argument("--no-budgets", action="store_true", help="A missed budget does not fail the run.")
    options = parser.parse_args(arguments)
    chosen: list[str] = options.names
    for variable in SHELL_ONLY:
        os.environ.pop(variable, None)
    for variable, value in (("BENCH_NODES", options.nodes), ("BENCH_WITHIN", options.within)):
        if value is not None:
            os.environ[variable] = str(value)  # modules read their settings when they are imported
    names = [m.name for m in pkgutil.iter_modules(bench.__path__) if m.name not in ("__main__", "measure")]
    if unknown := set(chosen) - set(names):
        print(f"no benchmark {', '.join(sorted(unknown))}; benchmarks: {', '.join(names)}", file=sys.stderr)
        return 1
    failed = over = 0
    for name in chosen or names:
        module = importlib.import_module(f"bench.{name}")
        if not hasattr(module, "measure"):
            continue
        print(f"{name}: {(module.__doc__ or '').strip().splitlines()[0]}", flush=True)
        try:
            lines = module.measure()
        except (RuntimeError, OSError) as err:
            print(f"     could not be measured: {err}")
            failed += 1
            continue
        for line in lines:
            over += not line.holds
            print(f"  {line}", flush=True)
    return 1 if failed or (over and not options.no_budgets) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
