"""What `ccm import file:PATH` finds: files that no package installed like this, and no secret."""

from __future__ import annotations

import hashlib
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ccm_agent.model.errors import FileError, UsageError
from ccm_agent.resources.contract import ResourceContext
from ccm_agent.resources.existing import ExistingResource, ExistingResources
from ccm_agent.resources.file.providers.existing import find_files
from ccm_agent.resources.packaged import (
    PackagedFiles,
    parse_conffiles,
    parse_md5sums,
    parse_owners,
    parse_verify,
)
from ccm_agent.testing.files import FakeFiles
from ccm_agent.testing.runner import FakeRunner
from ccm_agent.testing.trees import FakeTrees


def md5(content: str) -> str:
    return hashlib.md5(content.encode(), usedforsecurity=False).hexdigest()


@pytest.fixture
def files() -> FakeFiles:
    files = FakeFiles()
    files.put_directory("/etc")
    files.put_directory("/etc/app")
    return files


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> FakeRunner:
    """A host with dpkg, on which no path belongs to a package."""
    found = "ccm_agent.resources.registry.HostProbe.has_program"
    monkeypatch.setattr(found, lambda _self, name: name == "dpkg-query")
    runner = FakeRunner()
    return runner


async def find(
    files: FakeFiles, runner: FakeRunner, path: str = "/etc/app", *, owned: str = "", sums: str = ""
) -> ExistingResources:
    runner.when("dpkg-query", "--search", stdout=owned, code=1)
    runner.when("dpkg-query", "-W", stdout=sums)
    context = SimpleNamespace(runner=runner, files=files, port=lambda _name: FakeTrees(files))
    return await find_files(cast("ResourceContext", cast("Any", context)), path)


async def test_a_tree_is_found_with_owners_modes_and_contents(files: FakeFiles, runner: FakeRunner) -> None:
    files.put_directory("/etc/app/conf.d", mode=0o750)
    files.put("/etc/app/app.conf", "listen 80\n", mode=0o644)

    found = await find(files, runner)

    assert [(one.name, one.properties, one.content) for one in found.resources] == [
        ("/etc/app", {"ensure": "directory", "owner": "root", "group": "root", "mode": "0755"}, None),
        (
            "/etc/app/app.conf",
            {"ensure": "present", "owner": "root", "group": "root", "mode": "0644"},
            b"listen 80\n",
        ),
        ("/etc/app/conf.d", {"ensure": "directory", "owner": "root", "group": "root", "mode": "0750"}, None),
    ]
    assert found.left_out == ()


@pytest.mark.parametrize(
    ("mode", "is_kept"),
    [(0o755, True), (0o700, True), (0o311, True), (0o644, False), (0o755 & ~0o010, False)],
)
async def test_a_directory_whose_mode_an_apply_would_change_is_named(
    files: FakeFiles, runner: FakeRunner, mode: int, is_kept: bool
) -> None:
    files.put_directory("/etc/app/conf.d", mode=mode)

    found = await find(files, runner, "/etc/app/conf.d")

    assert [one.properties["mode"] for one in found.resources] == [f"{mode:04o}"] * is_kept
    assert [(one.name, one.reason) for one in found.left_out] == [
        (
            "/etc/app/conf.d",
            f"has mode {mode:04o}, and this type lets users enter each directory that they may read or write",
        )
    ] * (not is_kept)


async def test_a_single_file_is_found(files: FakeFiles, runner: FakeRunner) -> None:
    files.put("/etc/motd", "hello\n")

    found = await find(files, runner, "/etc/motd")

    assert [(one.name, one.content) for one in found.resources] == [("/etc/motd", b"hello\n")]


async def test_unchanged_files_of_packages_are_left_out(files: FakeFiles, runner: FakeRunner) -> None:
    for name, content in {"same": "a", "changed": "b", "shipped": "c", "own": "d"}.items():
        files.put(f"/etc/app/{name}", content)
    owned = "".join(f"app: /etc/app/{name}\n" for name in ("same", "changed", "shipped"))
    sums = f" /etc/app/same {md5('a')}\n /etc/app/changed {md5('x')} obsolete\n"
    runner.when("dpkg-query", "--control-show", "app", stdout=f"{md5('c')}  etc/app/shipped\n")

    found = await find(files, runner, owned=f"app: /etc/app\n{owned}", sums=sums)

    assert [one.name for one in found.resources] == ["/etc/app/changed", "/etc/app/own"]


@pytest.mark.parametrize(
    ("name", "content", "mode", "reason"),
    [
        ("key.pem", "-----BEGIN PRIVATE KEY-----\n", 0o644, "contains what looks like a private key"),
        ("db.conf", "password = hunter2\n", 0o644, "contains what looks like a password or token"),
        ("private", "plain\n", 0o600, "is private (mode 0600)"),
        ("closed/in", "plain\n", 0o644, "is in a private directory"),
        ("setuid", "plain\n", 0o4755, "has special permissions (mode 4755)"),
        ("{{ x }}", "plain\n", 0o644, "its name would be read as a template"),
        ("a\nb", "plain\n", 0o644, "its name is not printable text"),
        ("bad\udcff", "plain\n", 0o644, "its name is not printable text"),
    ],
)
async def test_what_a_manifest_must_not_hold_is_named(
    files: FakeFiles, runner: FakeRunner, name: str, content: str, mode: int, reason: str
) -> None:
    files.put_directory("/etc/app/closed", mode=0o700)
    files.put(f"/etc/app/{name}", content, mode=mode)

    found = await find(files, runner)

    assert [one.reason for one in found.left_out] == [reason]
    assert not any(one.content for one in found.resources)


async def test_symlinks_are_resources_of_their_own_type(files: FakeFiles, runner: FakeRunner) -> None:
    files.put_symlink("/etc/app/link", "../{{ x }}")
    files.put_symlink("/etc/app/shipped", "away")

    runner.when("dpkg-query", "--control-show", "app")

    found = await find(files, runner, owned="app: /etc/app/shipped\n")
    alone = await find(files, runner, "/etc/app/link")

    link = ExistingResource(
        kind="symlink",
        name="/etc/app/link",
        properties={"target": "../{{ x }}", "owner": "root", "group": "root"},
    )
    assert link in found.resources
    assert "/etc/app/shipped" not in {one.name for one in found.resources}
    assert (alone.resources, alone.left_out) == ((link,), ())


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("a\nb", "is a symlink whose target contains a control character, or bytes that are not UTF-8"),
        ("bad\udcff", "is a symlink whose target contains a control character, or bytes that are not UTF-8"),
        ("./link", "is a symlink to itself"),
    ],
)
async def test_symlinks_that_no_manifest_can_hold_are_named(
    files: FakeFiles, runner: FakeRunner, target: str, reason: str
) -> None:
    files.put_symlink("/etc/app/link", target)

    found = await find(files, runner)

    assert [(one.name, one.reason) for one in found.left_out] == [("/etc/app/link", reason)]


async def test_devices_are_named(files: FakeFiles, runner: FakeRunner) -> None:
    files.put_fifo("/etc/app/pipe")

    found = await find(files, runner)

    reasons = {one.name: one.reason for one in found.left_out}
    assert reasons == {"/etc/app/pipe": "is a FIFO, socket or device"}


@pytest.mark.parametrize("path", ["", "etc/app", "/", "/etc/../etc", "/etc/app/", "//etc"])
async def test_only_a_plain_absolute_path_is_taken(files: FakeFiles, runner: FakeRunner, path: str) -> None:
    with pytest.raises(UsageError, match="name an absolute path"):
        await find(files, runner, path)


@pytest.mark.parametrize("path", ["/etc/none", "/etc/pipe"])
async def test_what_is_no_file_or_directory_is_an_error(
    files: FakeFiles, runner: FakeRunner, path: str
) -> None:
    files.put_fifo("/etc/pipe")
    with pytest.raises(FileError, match=r"does not exist|neither a file nor a directory"):
        await find(files, runner, path)


async def test_rpm_answers_for_owned_and_changed_files() -> None:
    runner = FakeRunner()
    runner.when("rpm", "-qf", stdout="app\nfile /etc/app/own is not owned by any package\napp\n", code=1)
    runner.when("rpm", "-q", stdout="/etc/app\n/etc/app/same\n/etc/app/changed\n/usr/bin/app\n")
    runner.when("rpm", "-V", stdout="S.5......  c /etc/app/changed\nmissing     /usr/share/x\n", code=1)
    packaged = PackagedFiles(runner, has_dpkg=False, has_rpm=True)

    found = await packaged.unchanged(
        {"/etc/app/same": b"", "/etc/app/changed": b"", "/etc/app/own": b""}, ["/etc/app"]
    )

    assert found == {"/etc/app", "/etc/app/same"}


async def test_many_paths_are_asked_about_in_few_calls() -> None:
    runner = FakeRunner()
    runner.when("dpkg-query", code=0)
    packaged = PackagedFiles(runner, has_dpkg=True, has_rpm=False)

    await packaged.unchanged({f"/etc/{number}": b"" for number in range(1000)}, [])

    assert [line.split()[1] for line in runner.lines] == ["--search", "--search", "-W"]


def test_outputs_of_the_package_managers_are_parsed() -> None:
    assert parse_owners("a, b:amd64: /etc/x y\ndiversion by z from: /etc/q\nno path\n") == {
        "/etc/x y": ["a", "b:amd64"]
    }
    assert parse_conffiles(" /etc/x abc\n /etc/y def obsolete\n\n") == {"/etc/x": "abc", "/etc/y": "def"}
    assert parse_md5sums("abc  usr/share/a  b\n\n") == {"/usr/share/a  b": "abc"}
    assert parse_verify("S.5....T.  c /etc/a b\nmissing     /x\nUnsatisfied\n") == {"/etc/a b", "/x"}
