"""The decision tables of the reference's pages about files and about control, row by row."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.warm_ccm import warm_ccm


@pytest.fixture(scope="module")
def ccm() -> Iterator[Path]:
    with warm_ccm() as program:
        yield program


def apply(ccm: Path, folder: Path, resource: dict[str, Any], *flags: str) -> dict[str, Any]:
    """The event of a resource."""
    manifest = folder / "manifest.json"
    manifest.write_text(json.dumps({"ccm": {"resources": [resource]}}))
    done = subprocess.run(
        [ccm, "apply", manifest, "--events", "-", *flags], cwd=folder, capture_output=True, text=True
    )
    records = [json.loads(line) for line in done.stdout.splitlines()]
    [event] = [one for one in records if one["protocol"].endswith(".transaction.event")]
    return event


def prepare(path: Path, state: str) -> None:
    """Bring a path to a current state of the table."""
    if state == "absent":
        return
    if "directory" in state:
        path.mkdir(mode=0o700 if "wrong" in state else 0o750)
        if state == "non-empty directory":
            (path / "below").write_text("x")
    elif state == "symlink":
        path.symlink_to("/nonexistent")
    else:
        path.write_text("other" if "wrong content" in state else "text")
        path.chmod(0o600 if "wrong attrs" in state else 0o640)


def found(path: Path) -> tuple[str, str]:
    """Kind and mode of what is at a path."""
    if path.is_symlink() or not path.exists():
        return ("symlink", "") if path.is_symlink() else ("absent", "")
    kind = "directory" if path.is_dir() else path.read_text()
    return kind, oct(stat.S_IMODE(path.stat().st_mode))


@pytest.mark.parametrize(
    ("wanted", "extra", "current", "noop", "result"),
    [
        ("absent", {}, "absent", "", ("absent", "")),
        ("absent", {}, "present", "Would have removed the file", ("absent", "")),
        ("absent", {}, "symlink", "Would have removed the file", ("absent", "")),
        ("absent", {}, "empty directory", "Would have removed the directory", ("absent", "")),
        ("absent", {}, "non-empty directory", "Would have removed the directory", None),
        (
            "absent",
            {"force": True},
            "non-empty directory",
            "Would have recursively removed the directory",
            ("absent", ""),
        ),
        ("directory", {}, "directory", "", ("directory", "0o750")),
        ("directory", {}, "absent", "Would have created directory", ("directory", "0o750")),
        ("directory", {}, "directory, wrong attrs", "Would have created directory", ("directory", "0o750")),
        ("present", {"content": "text"}, "present", "", ("text", "0o640")),
        ("present", {"content": "text"}, "absent", "Would have created the file", ("text", "0o640")),
        ("present", {"content": "text"}, "wrong content", "Would have created the file", ("text", "0o640")),
        ("present", {"content": "text"}, "wrong attrs", "Would have created the file", ("text", "0o640")),
        ("present", {}, "present", "", ("text", "0o640")),
        ("present", {}, "wrong attrs", "Would have updated attributes", ("text", "0o640")),
        (
            "present",
            {},
            "absent",
            "Would have created an empty file with requested attributes",
            ("", "0o640"),
        ),
        ("present", {"content": "text"}, "directory", None, None),
        ("present", {}, "directory", None, None),
    ],
)
def test_the_table_of_files(
    ccm: Path,
    tmp_path: Path,
    wanted: str,
    extra: dict[str, Any],
    current: str,
    noop: str | None,
    result: tuple[str, str] | None,
) -> None:
    path = tmp_path / "path"
    prepare(path, current)
    before = found(path)
    mode = "0750" if wanted == "directory" else "0640"
    owners = {"owner": str(os.getuid()), "group": str(os.getgid()), "mode": mode}
    resource = {"file": [{str(path): {"ensure": wanted, **extra, **({} if wanted == "absent" else owners)}}]}

    planned = apply(ccm, tmp_path, resource, "--noop")
    left = found(path)
    done = apply(ccm, tmp_path, resource)

    assert left == before
    if noop is not None:
        assert planned.get("noop_message", "") == noop
    assert done["failed"] is (result is None)
    assert done["changed"] is (result is not None and noop != "")
    assert found(path) == (before if result is None else result)


@pytest.mark.parametrize(
    ("conditions", "is_managed"),
    [
        ({}, True),
        ({"if": "true"}, True),
        ({"if": "false"}, False),
        ({"unless": "true"}, False),
        ({"unless": "false"}, True),
        ({"if": "true", "unless": "true"}, False),
        ({"if": "true", "unless": "false"}, True),
        ({"if": "false", "unless": "true"}, False),
        ({"if": "false", "unless": "false"}, False),
    ],
)
def test_the_table_of_control(
    ccm: Path, tmp_path: Path, conditions: dict[str, str], is_managed: bool
) -> None:
    resource = {
        "exec": [{f"/usr/bin/touch {tmp_path / 'made'}": {"control": conditions} if conditions else {}}]
    }

    event = apply(ccm, tmp_path, resource)

    assert ((tmp_path / "made").exists(), event["skipped"]) == (is_managed, not is_managed)
