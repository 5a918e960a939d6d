"""
Take each check of the verifying code out, one at a time, and see that a test fails: `python -m tests.mutants`.

    python -m tests.mutants --list                       the checks, one a line
    python -m tests.mutants --only bus/signatures/trust.py          those whose line holds this text
    python -m tests.mutants --sample 20 --seed 7         some of them
    python -m tests.mutants --json                       one JSON object a check
    python -m tests.mutants --no-broker                  with unit tests only

Two tiers are used: first the unit tests of modules with a check and of what is signed (`find_tests`), then, for the checks that
survived them and have no reason in `allowed.py`, the tests with a real broker in BROKER_TESTS, which need nats-server. Of the
tests, those run that come to the check, also in processes that they start.

The checks are read from the code (`checks.py`). They are taken out in a copy of the tree. Exit status 1: one survived that is
not in `allowed.py`, or an entry there is of no check.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from tests.mutants.allowed import ALLOWED
from tests.mutants.checks import PACKAGES, SUBJECTS, Check, find_checks
from tests.mutants.copies import SESSION, make_copy

TOP = Path(__file__).resolve().parents[2]
SIGNED = re.compile(
    r"SigningKey|Keyring|SignersList|Signer\(|OwnSignatory|SignedDesk|Unverified|Verified|Signatory|new_key\(|is_digest|"
    r"support\.(authorship|signed_|signing)"
)
"""What a test file mentions that tries something signed."""
BROKER_TESTS = (
    "tests/contract/bus/test_objects.py",
    "tests/nats/test_audit.py",
    "tests/nats/test_broker_taken_over.py",
    "tests/nats/test_bundles.py",
    "tests/nats/test_forged_runs.py",
    "tests/nats/test_handovers.py",
    "tests/nats/test_lost_state.py",
    "tests/nats/test_node_state.py",
    "tests/nats/test_rollout_orders.py",
    "tests/nats/test_scopes_of_requests.py",
    "tests/nats/test_unverified_bases.py",
    "tests/nats/test_withheld_signers.py",
    "tests/nats/test_written_once.py",
)
"""With a real broker. A check that survives the unit tests is tried with them."""
LIMIT_S = 120
"""So long the tests of one check may take together; then it has survived."""
TEST_LIMIT_S, BROKER_TEST_LIMIT_S = 20, 90
LOOK_LIMIT_S = 3600
KILLED, TIMED_OUT, UNTESTED = "killed", "timed out", "no test comes to it"


class Tree(Struct, frozen=True, kw_only=True):
    """
    A tree whose checks are tried.

    Attributes:
        top: Its folder.
        packages: Folders with code.
        subjects: Modules whose subject is verification.
        tests: What pytest runs; empty: the unit tests of what is signed.
        test_limit_s: How long a test may take.
    """

    top: Path = TOP
    packages: tuple[str, ...] = PACKAGES
    subjects: tuple[str, ...] = SUBJECTS
    tests: tuple[str, ...] = ()
    test_limit_s: int = TEST_LIMIT_S

    def checks(self) -> list[Check]:
        """All of its checks."""
        return find_checks(self.top, self.packages, self.subjects)


def find_tests(top: Path, checks: Sequence[Check]) -> list[str]:
    """The unit tests that mention what is signed, or import a module with a check; not those of this tool."""
    modules = {one.path.removesuffix(".py").replace("/", ".") for one in checks}
    found = []
    for path in sorted((top / "tests/unit").rglob("test_*.py")):
        text = path.read_text()
        if "tests.mutants" not in text and (SIGNED.search(text) or any(one in text for one in modules)):
            found.append(str(path.relative_to(top)))
    return found


class Result(Struct, frozen=True, kw_only=True):
    """
    What became of a check that was taken out.

    Attributes:
        check: Which.
        result: `killed`, `survived`, `timed out` or `no test comes to it`.
        tests: How many tests were run.
        test: The one that failed; of a check that survived, what was not run.
    """

    check: Check
    result: str
    tests: int = 0
    test: str = ""

    @property
    def is_killed(self) -> bool:
        """A test has noticed that it was missing; one that never ends has, too."""
        return self.result in (KILLED, TIMED_OUT)

    def __str__(self) -> str:
        return f"{self.result}: {self.check}" + (f"  [{self.test}]" if self.test else "")


def try_checks(
    tree: Tree,
    chosen: Sequence[Check],
    *,
    workers: int = 2,
    limit_s: float = LIMIT_S,
    log: Path | None = None,
) -> list[Result]:
    """
    Take checks out of a copy of a tree, each once.

    Raises:
        RuntimeError: The tests could not be run, or some fail with all checks in place.
    """
    checks = tree.checks()
    with tempfile.TemporaryDirectory(prefix="ccm-mutants-") as name:
        copy, out, plan = Path(name) / "tree", Path(name) / "out.json", Path(name) / "plan.json"
        make_copy(tree.top, copy, checks)
        plan.write_text(
            json.dumps(
                {
                    "chosen": [one.number for one in chosen],
                    "paths": {one.number: one.path for one in checks},
                    "expected": {package: str(copy) for package in tree.packages},
                    "workers": workers,
                    "limit_s": limit_s,
                    "look_limit_s": LOOK_LIMIT_S,
                    "out": str(out),
                    "progress": str(log or Path(name) / "progress.jsonl"),
                }
            )
        )
        command = [
            sys.executable, "-m", "pytest", "-q", "-s", "-p", SESSION,
            "-p", "no:xdist", "-p", "no:rerunfailures", "-p", "no:cacheprovider",
            f"--timeout={tree.test_limit_s}", *(tree.tests or find_tests(tree.top, checks)),
        ]  # fmt: skip
        environ = os.environ | {"PYTHONPATH": str(copy), "CCM_MUTANTS_PLAN": str(plan)}
        environ.pop("CCM_MUTANT", None)
        done = subprocess.run(command, cwd=copy, env=environ, capture_output=True, text=True, check=False)
        if not out.is_file():
            raise RuntimeError(f"the tests could not be run:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
        found = json.loads(out.read_text())
    if found["failed_before"]:
        print("left out, because they fail with all checks in place:", *found["failed_before"], sep="\n  ")
    results: dict[str, Any] = found["results"]
    return [Result(check=one, **results[str(one.number)]) for one in chosen]


def choose(checks: Sequence[Check], only: Sequence[str], sample: int, seed: int) -> list[Check]:
    """The checks that hold one of the texts in their line; of these, some."""
    found = [one for one in checks if not only or any(text in str(one) for text in only)]
    return (
        sorted(random.Random(seed).sample(found, sample), key=lambda one: one.number)
        if 0 < sample < len(found)
        else found
    )


def find_reason(check: Check, allowed: Mapping[str, str]) -> str | None:
    """Why a check may survive; None: it may not."""
    return next((reason for name, reason in allowed.items() if check.name.startswith(name)), None)


def find_faults(results: Sequence[Result], checks: Sequence[Check], allowed: Mapping[str, str]) -> list[str]:
    """What is wrong: checks that survived without a reason, and reasons without a check."""
    survived = [str(one) for one in results if not one.is_killed and find_reason(one.check, allowed) is None]
    stale = [name for name in allowed if not any(one.name.startswith(name) for one in checks)]
    return survived + [f"allowed, and no check has this name: {name}" for name in stale]


def summarize(results: Sequence[Result], allowed: Mapping[str, str]) -> str:
    """How many checks each tier has killed, how many may survive, and how many are unexplained."""

    def end(one: Result) -> str:
        if one.is_killed:
            is_broker = one.test.partition("::")[0] in BROKER_TESTS
            return "killed by tests with a broker" if is_broker else "killed by unit tests"
        return "unexplained" if find_reason(one.check, allowed) is None else "allowed"

    counts = Counter(end(one) for one in results)
    ends = ("killed by unit tests", "killed by tests with a broker", "allowed", "unexplained")
    return f"{len(results)} checks: {', '.join(f'{counts[end]} {end}' for end in ends)}"


def main(argv: Sequence[str]) -> int:
    """Run, print, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__.partition("\n\n")[0])
    parser.add_argument("--list", action="store_true", help="print the checks, and try none")
    parser.add_argument(
        "--only", action="append", default=[], metavar="TEXT", help="those whose line holds it"
    )
    parser.add_argument("--sample", type=int, default=0, metavar="N", help="so many of them")
    parser.add_argument("--seed", type=int, default=1, help="which sample")
    parser.add_argument("--json", action="store_true", help="one JSON object a check")
    parser.add_argument(
        "--tests", action="append", default=[], metavar="PATH", help="run these tests instead"
    )
    parser.add_argument("--no-broker", action="store_true", help="run unit tests only")
    parser.add_argument("--workers", type=int, default=2, help="how many checks at once")
    parser.add_argument("--limit", type=float, default=LIMIT_S, metavar="S", help="seconds for each check")
    parser.add_argument("--log", type=Path, help="a file for the results as they come")
    given = parser.parse_args(argv)
    tree = Tree(tests=tuple(given.tests))
    checks = tree.checks()
    chosen = choose(checks, given.only, given.sample, given.seed)
    if given.list:
        print(*chosen, f"{len(chosen)} checks", sep="\n")
        return 0
    results = try_checks(tree, chosen, workers=given.workers, limit_s=given.limit, log=given.log)
    left = [one.check for one in results if not one.is_killed and find_reason(one.check, ALLOWED) is None]
    if left and not given.tests and not given.no_broker:
        broker = Tree(tests=BROKER_TESTS, test_limit_s=BROKER_TEST_LIMIT_S)
        again = try_checks(broker, left, workers=given.workers, limit_s=given.limit, log=given.log)
        by_check = {one.check.number: one for one in again if one.result != UNTESTED}
        results = [by_check.get(one.check.number, one) for one in results]
    for one in results:
        if given.json:
            print(
                json.dumps(
                    {"check": str(one.check), "result": one.result, "tests": one.tests, "test": one.test}
                )
            )
        elif not one.is_killed:
            reason = find_reason(one.check, ALLOWED)
            print(one, f"(allowed: {reason})" if reason is not None else "")
    faults = find_faults(results, checks, ALLOWED)
    print(summarize(results, ALLOWED), *faults, sep="\n", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
