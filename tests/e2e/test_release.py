"""A release: an sdist and a wheel from a clean clone, which contain their version and commit, and notes for users."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from importlib import metadata
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from ccm_agent.version import VERSION
from tests.e2e.test_installation import PYPI, run
from tests.support.fleet import TOP

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]


def test_build_without_strip_names_the_package_to_install_and_makes_nothing(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    build = [sys.executable, str(TOP / "deploy/packages/build.py"), "--out", str(tmp_path / "dist")]
    done = subprocess.run(
        build,
        cwd=TOP,
        env={**os.environ, "PATH": str(tmp_path / "bin")},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1
    assert done.stderr == "strip is not installed; on Debian, apt-get install binutils\n"
    assert not (tmp_path / "dist").exists()


def test_sdist_and_wheel_of_a_clean_clone_know_their_commit(tmp_path: Path) -> None:
    try:
        urllib.request.urlopen(PYPI, timeout=10).close()
    except urllib.error.URLError as err:
        pytest.skip(f"needs PyPI: {err.reason}")
    run(["git", "clone", "--quiet", str(TOP), "clone"], tmp_path, os.environ)
    commit = run(["git", "rev-parse", "HEAD"], tmp_path / "clone", os.environ)[:8]

    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path / "dist")]
    run(build, tmp_path / "clone", os.environ)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    run([sys.executable, "-m", "venv", str(tmp_path / "venv")], tmp_path, os.environ)
    run([str(tmp_path / "venv/bin/pip"), "install", "--quiet", "--no-deps", str(wheel)], tmp_path, os.environ)

    assert sorted(path.name for path in (tmp_path / "dist").iterdir()) == [
        f"ccm_fleet-{VERSION}-py3-none-any.whl",
        f"ccm_fleet-{VERSION}.tar.gz",
    ]
    for program in ("ccm", "ccmctl"):
        printed = run([str(tmp_path / "venv/bin" / program), "--version"], tmp_path, os.environ)
        assert printed == f"{program} {VERSION} ({commit})\n"
    status = subprocess.run(
        ["git", "status", "--porcelain"], cwd=tmp_path / "clone", capture_output=True, text=True, check=True
    )
    assert status.stdout == ""


def is_locked() -> bool:
    """Whether all that is installed here and pinned has the pinned version, as after `make LOCKED=1`."""
    pinned = re.findall(r"^(\S+)==(\S+)", (TOP / ".ci/requirements.txt").read_text(), re.MULTILINE)
    installed = {one.name.lower().replace("_", "-"): one.version for one in metadata.distributions()}
    return all(installed.get(name, version) == version for name, version in pinned)


@pytest.mark.skipif(
    not is_locked(), reason="a release contains pinned versions alone: make LOCKED=1 installs them"
)
@pytest.mark.skipif(
    not all(map(shutil.which, ("dpkg-deb", "rpmbuild", "lintian", "strip", "aarch64-linux-gnu-strip"))),
    reason="needs dpkg-deb, rpmbuild, lintian, and strip for both processors",
)
@pytest.mark.timeout(480)
def test_one_command_makes_a_release_for_both_processors(tmp_path: Path) -> None:
    command = [sys.executable, "deploy/packages/build.py", "--fast", "--out", str(tmp_path)]
    run([*command, "--machine", "x86_64", "--machine", "aarch64"], TOP, os.environ)

    # a part of the name that says for which Python it is
    made = sorted(re.sub(r"py3\d\d", "py3", path.name) for path in tmp_path.iterdir())
    assert made == [
        f"ccm-agent-{VERSION}-1.py3.aarch64.cdx.json",
        f"ccm-agent-{VERSION}-1.py3.aarch64.rpm",
        f"ccm-agent-{VERSION}-1.py3.x86_64.cdx.json",
        f"ccm-agent-{VERSION}-1.py3.x86_64.rpm",
        f"ccm-agent_{VERSION}-1.py3_amd64.deb",
        f"ccm-agent_{VERSION}-1.py3_arm64.deb",
        f"ccm_fleet-{VERSION}-py3-none-any.whl",
        f"ccm_fleet-{VERSION}.tar.gz",
    ]
    # it reports modules for another processor, and what lacks in a package
    (package,) = tmp_path.glob("*_arm64.deb")
    checked = run(["lintian", "--allow-root", "--fail-on", "none", str(package)], tmp_path, os.environ)
    assert [line for line in checked.splitlines() if line.startswith("E: ")] == []
    for path in tmp_path.glob("*.cdx.json"):
        assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(path.read_text()) is None
        bill = json.loads(path.read_text())
        assert bill["metadata"]["component"]["purl"] == f"pkg:pypi/ccm-fleet@{VERSION}"
        assert {"nats-py", "google-re2", "pyyaml", "preact"} <= {one["name"] for one in bill["components"]}


def test_version_has_notes_for_users() -> None:
    assert VERSION == "1.0.0"
    assert f'version = "{VERSION}"' in (TOP / "pyproject.toml").read_text()
    assert re.search(rf"^## {re.escape(VERSION)}\b", (TOP / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert f"\n## {VERSION}\n" in (TOP / "docs/releases.md").read_text()
