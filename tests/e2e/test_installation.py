"""`uv tool install .` and `pipx install .`, as the README says: both programs run from it, and the metadata are complete."""

from __future__ import annotations

import email
import os
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from email.message import Message
from pathlib import Path

import pytest

from ccm_agent.version import VERSION
from tests.support.fleet import TOP

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

PYPI = "https://pypi.org/simple/click/"
INSTALLERS = {
    "uv": ["uv", "tool", "install", "--python", sys.executable, "."],
    "pipx": ["pipx", "install", "--python", sys.executable, "."],
}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a clone of the project holds: building leaves files behind."""
    folder = tmp_path_factory.mktemp("checkout")
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(
        listed, cwd=TOP, capture_output=True, text=True, check=True
    ).stdout.splitlines():
        if (TOP / name).is_symlink() or (TOP / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(TOP / name, folder / name, follow_symlinks=False)
    return folder


@pytest.fixture(scope="module")
def installers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with uv and pipx, as their packages bring them."""
    try:
        urllib.request.urlopen(PYPI, timeout=10).close()
    except urllib.error.URLError as err:
        pytest.skip(f"needs PyPI: {err.reason}")
    folder = tmp_path_factory.mktemp("installers")
    run([sys.executable, "-m", "venv", str(folder)], folder, os.environ)
    run([str(folder / "bin/pip"), "install", "--quiet", *INSTALLERS], folder, os.environ)
    return folder / "bin"


def run(words: Sequence[str], directory: Path, environ: os._Environ[str] | dict[str, str]) -> str:
    """What a program prints, which must succeed."""
    done = subprocess.run(words, cwd=directory, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("installer", INSTALLERS)
def test_both_programs_run_after_the_installation(
    installer: str, installers: Path, checkout: Path, tmp_path: Path
) -> None:
    places = {"UV_TOOL_DIR": "tools", "UV_TOOL_BIN_DIR": "bin", "PIPX_HOME": "tools", "PIPX_BIN_DIR": "bin"}
    environ = {
        **os.environ,  # a machine may reach PyPI through a proxy or mirror of its own
        "PATH": f"{installers}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        **{name: str(tmp_path / place) for name, place in places.items()},
    }

    run(INSTALLERS[installer], checkout, environ)

    ccm, ccmctl = str(tmp_path / "bin/ccm"), str(tmp_path / "bin/ccmctl")
    assert run([ccm, "--version"], tmp_path, environ) == f"ccm {VERSION}\n"  # this copy has no commit
    assert run([ccmctl, "--version"], tmp_path, environ) == f"ccmctl {VERSION}\n"
    # schemas are data of the package, and ccmctl makes its flags of them
    assert "--owner" in run([ccmctl, "ensure", "file", "--help"], tmp_path, environ)
    run([ccm, "ensure", "file", str(tmp_path / "made"), "--content", "x"], tmp_path, environ)
    assert (tmp_path / "made").read_text() == "x"
    (metadata,) = (tmp_path / "tools").rglob("ccm_fleet-*.dist-info/METADATA")
    check_metadata(email.message_from_string(metadata.read_text()))


def check_metadata(metadata: Message) -> None:
    """All that an index and its readers ask for is there."""
    readme = metadata.get_payload()

    assert metadata["Name"] == "ccm-fleet"
    assert metadata["Version"] == VERSION
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert isinstance(readme, str)
    assert readme.startswith("# ccm-fleet\n")
    assert 20 < len(metadata["Summary"]) < 120
    assert metadata["Author"]
    assert len(metadata["Keywords"].split(",")) >= 5
    assert all(re.search(r", https://\S+$", url) for url in metadata.get_all("Project-URL", []))
    assert {one.partition(" :: ")[0] for one in metadata.get_all("Classifier", [])} >= {
        "Development Status", "Environment", "Intended Audience", "Operating System", "Programming Language", "Topic", "Typing",
    }  # fmt: skip
    minor = metadata["Requires-Python"].removeprefix(">=")
    assert f"Programming Language :: Python :: {minor}" in metadata.get_all("Classifier", [])
