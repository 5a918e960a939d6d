#!/usr/bin/env python3
"""
Run the tests, tier by tier, and say which tiers this machine can run and why it cannot run the others.

    test.py                   every tier that this machine can run
    test.py unit e2e          these tiers
    test.py --require-all     a tier, or a test within one, that is skipped counts as a failure (what CI says)

Tests with processes or browsers of their own depend on the load of this machine. One that fails
runs a second time, and the summary names it when it passes then: it needs repair. More than three of them
count as failures.

The last line is `N passed, N failed, N skipped`. Exit status 1 when a test failed, or when nothing ran.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
TESTENV = TOP / "tests/testenv"
SECOND_RUN = ["--reruns=1", "-rR", "--rerun-show-tracebacks"]
UNSTABLE_ALLOWED = 3
SANDBOX = ["unshare", "--fork", "--kill-child", "--pid", "--mount", "--net", "--mount-proc", "--"]


def anywhere() -> str:
    """Return "", because these tiers can run on any machine."""
    return ""


def without_server() -> str:
    """Return why the tiers that need nats-server cannot run, or ""."""
    probe = "from ccm_agent.testing.nats_server import find_server; print(find_server() or '')"
    done = subprocess.run([sys.executable, "-c", probe], cwd=TOP, capture_output=True, text=True, check=False)
    if done.stdout.strip():
        return ""
    return "no nats-server: set NATS_SERVER, or run .ci/fetch-nats-server" + done.stderr[-300:]


def without_machines() -> str:
    """Return why the tests that change a machine cannot run, or "". They run in their own namespaces."""
    sys.path.insert(0, str(TESTENV))
    import testenv

    if why := testenv.missing():
        return str(why)
    return "" if shutil.which("mmdebstrap") else "no mmdebstrap, which makes the machines' file system"


def without_browser() -> str:
    """Return why the tests in a browser cannot run, or ""."""
    if not any(shutil.which(name) for name in ("chromium", "chromium-browser")):
        return "no chromium; on Debian: apt-get install chromium"
    return without_server()


@dataclass
class Tier:
    """One tier: its content, requirements and command."""

    name: str
    about: str
    paths: list[str]
    missing: Callable[[], str]
    options: list[str] = field(default_factory=list)
    sandboxed: bool = False


TIERS = [
    Tier("unit", "no network, no clock", ["tests/unit", "tests/architecture"], anywhere, ["-n", "2"]),
    Tier(
        "conformance",
        "the reference's answers",
        ["tests/conformance", "tests/examples"],
        anywhere,
        ["-n", "2", "--timeout=300"],
    ),
    Tier(
        "fuzz",
        "50,000 malformed inputs",
        ["tests/fuzz"],
        anywhere,
        ["-n", "2", "--timeout=120"],
    ),
    Tier(
        "contract",
        "fakes and real adapters",
        ["tests/contract"],
        without_server,
        ["-n", "2", "--timeout=60"],
    ),
    Tier(
        "nats",
        "one process and a real nats-server",
        ["tests/nats"],
        without_server,
        ["-n", "3", "--timeout=90", *SECOND_RUN],
    ),
    Tier(
        "e2e",
        "controller, agents, server",
        ["tests/e2e"],
        without_server,
        ["-n", "3", "--timeout=240", *SECOND_RUN],
    ),
    Tier(
        "dashboard",
        "the pages in a real browser",
        ["tests/dashboard"],
        without_browser,
        ["-n", "2", "--dist", "loadfile", "--timeout=240", *SECOND_RUN],
    ),
    Tier(
        "host",
        "real systemd, apt and dnf in machines of the tests' own",
        ["tests/testenv", "tests/host"],
        without_machines,
        [
            "-n",
            "2",
            "--dist",
            "loadfile",
            "--timeout=300",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:rerunfailures",
        ],
        sandboxed=True,
    ),
]


@dataclass
class Result:
    """
    The result of a tier.

    Attributes:
        cpu_s: CPU time of pytest and the processes that it waited for. In contrast to elapsed time, it hardly depends on other
            load.
    """

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    status: int = 0
    unstable: list[str] = field(default_factory=list)
    """Tests that passed in their second run."""

    cpu_s: float = 0.0


def say(text: str) -> None:
    """Print a line immediately, even if the output is redirected."""
    print(text, flush=True)


def run(tier: Tier, extra: list[str]) -> Result:
    """Run one tier with pytest, and read its counts from the report."""
    paths = [path for path in tier.paths if any((TOP / path).rglob("test_*.py"))]
    if not paths:
        return Result(status=5)
    with tempfile.NamedTemporaryFile(suffix=".xml") as report:
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            f"--junit-xml={report.name}",
            *tier.options,
            *extra,
            *paths,
        ]
        env = dict(os.environ)
        if tier.sandboxed:
            command = [*SANDBOX, *command]
            env["CM_TESTENV_REQUIRED"] = "1"
        started = subprocess.Popen(command, cwd=TOP, env=env, stdin=subprocess.DEVNULL)
        _, code, used = os.wait4(started.pid, 0)
        started.returncode = os.waitstatus_to_exitcode(code)
        result = Result(status=started.returncode, cpu_s=used.ru_utime + used.ru_stime)
        try:
            root = ET.parse(report.name).getroot()
        except ET.ParseError:
            result.failed = 1
            return result
    result.unstable = unstable_tests(root)
    for suite in root.iter("testsuite"):
        number = {key: int(suite.get(key, "0")) for key in ("tests", "failures", "errors", "skipped")}
        bad = number["failures"] + number["errors"]
        result.failed += bad
        result.skipped += number["skipped"]
        result.passed += number["tests"] - bad - number["skipped"]
    if result.status not in (0, 5) and not result.failed:
        result.failed = 1
    return result


def unstable_tests(report: ET.Element) -> list[str]:
    """Return the tests that are in a JUnit report twice, first for the failed run, and that did not fail in the second run."""
    runs: dict[str, list[ET.Element]] = {}
    for case in report.iter("testcase"):
        runs.setdefault(f"{case.get('classname')}::{case.get('name')}", []).append(case)
    return [
        name
        for name, cases in runs.items()
        if len(cases) > 1
        and not any(case.find(kind) is not None for case in cases for kind in ("failure", "error"))
    ]


def main() -> int:
    """Run the chosen tiers, and return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tiers", nargs="*", metavar="TIER", help=", ".join(tier.name for tier in TIERS))
    parser.add_argument("--require-all", action="store_true", help="a skipped tier or test is a failure")
    parser.add_argument("--pytest", default="", help="further arguments for pytest")
    args = parser.parse_args()
    # a shell makes background commands ignore SIGINT, and programs that tests interrupt would inherit this
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if unknown := set(args.tiers) - {tier.name for tier in TIERS}:
        parser.error(f"no tier {', '.join(sorted(unknown))}")
    chosen = [tier for tier in TIERS if not args.tiers or tier.name in args.tiers]
    why = {tier.name: tier.missing() for tier in chosen}
    for tier in chosen:
        say(
            f"tier {tier.name:<12} {'skipped: ' + why[tier.name] if why[tier.name] else 'runs'} ({tier.about})"
        )
    building = None
    if "host" in why and not why["host"]:
        building = subprocess.Popen(["bash", str(TESTENV / "prepare.sh")], stdout=subprocess.DEVNULL)
    total, lines = Result(), []
    for tier in chosen:
        if why[tier.name]:
            total.failed += args.require_all
            lines.append(f"  {tier.name:<12} skipped: {why[tier.name]}")
            continue
        if tier.sandboxed and building:
            say("waiting for the machines' file system")
            building.wait()
        say(f"\n== {tier.name}: {tier.about}")
        begin = time.monotonic()
        result = run(tier, args.pytest.split())
        took = time.monotonic() - begin
        total.passed += result.passed
        total.failed += result.failed + (result.skipped if args.require_all else 0)
        total.skipped += result.skipped
        total.unstable += result.unstable
        counts = f"{result.passed} passed, {result.failed} failed, {result.skipped} skipped"
        lines.append(f"  {tier.name:<12} {counts} in {took:.0f} s ({result.cpu_s:.0f} s of CPU)")
    say("\n" + "\n".join(lines))
    for name in total.unstable:
        say(f"passed only in its second run: {name}")
    if len(total.unstable) > UNSTABLE_ALLOWED:
        say(f"more than {UNSTABLE_ALLOWED} tests passed only in their second run: they count as failures")
        total.failed += len(total.unstable)
    say(f"{total.passed} passed, {total.failed} failed, {total.skipped} skipped")
    return 1 if total.failed or not total.passed else 0


if __name__ == "__main__":
    sys.exit(main())
