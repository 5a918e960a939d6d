"""Packages: 200 that are already installed, compared with one dpkg-query for the same packages and with an empty apply."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from bench.measure import BIN, Line, ratio, seconds, side_by_side

PACKAGES, ROUNDS = 200, 11


def installed() -> list[str]:
    """Return names of packages that are installed on this host. Nothing is changed."""
    form = "${Package} ${db:Status-Status}\n"
    shown = subprocess.check_output(["dpkg-query", "-W", f"-f={form}"], text=True)
    return sorted({line.split()[0] for line in shown.splitlines() if line.endswith(" installed")})[:PACKAGES]


def measure() -> list[Line]:
    """Measure the budget of packages."""
    if not shutil.which("dpkg-query") or not shutil.which("apt-get"):
        raise RuntimeError("no dpkg here to compare with")
    names = installed()
    if len(names) < PACKAGES:
        raise RuntimeError(f"only {len(names)} packages are installed here, {PACKAGES} are needed")
    with tempfile.TemporaryDirectory() as folder:
        manifest, nothing = Path(folder, "packages.yaml"), Path(folder, "nothing.yaml")
        rows = "".join(f"        - {name}: {{ensure: present}}\n" for name in names)
        manifest.write_text(f"ccm:\n  resources:\n    - package:\n{rows}")
        nothing.write_text("ccm:\n  resources:\n    - exec: [{/bin/true: {refreshonly: true}}]\n")
        ours, query, empty = side_by_side(
            ROUNDS,
            lambda: seconds([str(BIN / "ccm"), "apply", str(manifest)]),
            lambda: seconds(["dpkg-query", "-W", "-f=${Package} ${Version}\n", "--", *names]),
            lambda: seconds([str(BIN / "ccm"), "apply", str(nothing)]),
        )
    what = "one dpkg-query and an apply of nothing"
    return [ratio(f"ccm apply of {PACKAGES} packages that are right", ours, query + empty, 1.5, what)]
