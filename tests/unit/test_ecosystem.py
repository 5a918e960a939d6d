"""Files for other tools: hooks of pre-commit, and what Dependabot updates."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from itertools import chain
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

TOP = Path(__file__).resolve().parents[2]
HOOKS = {hook["id"]: hook for hook in yaml.safe_load((TOP / ".pre-commit-hooks.yaml").read_text())}
GOOD = 'ccm:\n  resources:\n    - exec:\n        - "true": {}\n'
UNKNOWN_TYPE = GOOD.replace("exec:", "exce:")
INDENTED = GOOD.replace("        - ", "            - ")


def hook(name: str, path: Path) -> int:
    """The exit status of a hook for a file, as pre-commit runs it."""
    program, *words = HOOKS[name]["entry"].split()
    assert program == "ccm"
    return subprocess.run(
        [sys.executable, "-m", "ccm_agent", *words, path.name],
        cwd=path.parent,
        capture_output=True,
        check=False,
    ).returncode


def test_pre_commit_accepts_the_hooks() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pre_commit", "validate-manifest", str(TOP / ".pre-commit-hooks.yaml")],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, set(HOOKS)) == (0, {"ccm-lint", "ccm-fmt"}), done.stdout


def test_lint_hook_fails_for_a_manifest_with_a_mistake_only(tmp_path: Path) -> None:
    path = tmp_path / "manifest.yaml"
    path.write_text(GOOD)
    assert hook("ccm-lint", path) == 0

    path.write_text(UNKNOWN_TYPE)
    assert hook("ccm-lint", path) != 0


def test_format_hook_rewrites_a_manifest_so_that_pre_commit_reports_it(tmp_path: Path) -> None:
    path = tmp_path / "manifest.yaml"
    path.write_text(INDENTED)

    assert hook("ccm-fmt", path) == 0
    formatted = path.read_text()
    assert hook("ccm-fmt", path) == 0
    assert (formatted != INDENTED, path.read_text()) == (True, formatted)


@pytest.mark.parametrize(
    ("name", "is_checked"),
    [("manifest.yaml", True), ("site/manifest.yaml", True), ("web.ccm.yaml", True), ("values.yaml", False)],
)
def test_hooks_check_manifests_only(name: str, is_checked: bool) -> None:
    assert {bool(re.search(one["files"], name)) for one in HOOKS.values()} == {is_checked}


def test_dependabot_updates_each_place_with_versions() -> None:
    config = yaml.safe_load((TOP / ".github/dependabot.yml").read_text())
    manifests = {"/": "pyproject.toml", "/.ci": "requirements.txt", "/.ci/javascript": "package.json"}

    folders = [
        (one["package-ecosystem"], folder)
        for one in config["updates"]
        for folder in one.get("directories") or [one["directory"]]
    ]

    assert folders == [("pip", "/"), ("pip", "/.ci"), ("npm", "/.ci/javascript")]
    assert all((TOP / folder.lstrip("/") / manifests[folder]).is_file() for _, folder in folders)


def locked(name: str) -> dict[str, tuple[str, int]]:
    """The version of each distribution that a list of CI names, and its number of digests."""
    text = (TOP / ".ci" / name).read_text()
    blocks = re.findall(
        r"^([a-z][^=\s]*)==(\S+)[^\n]*\n((?: +--hash=sha256:[0-9a-f]{64}.*\n)*)", text, re.MULTILINE
    )
    return {name: (version, hashes.count("--hash")) for name, version, hashes in blocks}


def test_ci_installs_what_the_project_requires_by_digest() -> None:
    config = tomllib.loads((TOP / "pyproject.toml").read_text())
    project, build = config["project"], config["build-system"]["requires"]
    required = [*project["dependencies"], *chain.from_iterable(project["optional-dependencies"].values())]

    for name, texts in {"requirements.txt": required, "requirements-build.txt": build}.items():
        found = locked(name)
        for requirement in map(Requirement, texts):
            version, _ = found[canonicalize_name(requirement.name)]
            assert requirement.specifier.contains(version), f"{name}: {requirement}; run `make lock`"
        assert all(digests for _, digests in found.values())
