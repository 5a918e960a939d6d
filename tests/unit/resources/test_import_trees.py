"""What `ccm import` finds of units, repositories and directories."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from ccm_agent.model.errors import FileError, UsageError
from ccm_agent.model.ports import FileInfo
from ccm_agent.resources.config.providers.existing import find_keys
from ccm_agent.resources.container.model import ContainerProperties
from ccm_agent.resources.container.providers.existing import find_containers
from ccm_agent.resources.container.providers.podman import GENERATOR
from ccm_agent.resources.container.quadlet import render, render_variables
from ccm_agent.resources.contract import ResourceContext
from ccm_agent.resources.directory.providers.existing import find_directory
from ccm_agent.resources.edit.providers.existing import find_blocks
from ccm_agent.resources.existing import ExistingResources
from ccm_agent.resources.file.providers.existing import find_files
from ccm_agent.resources.repository.formats import FORMATS
from ccm_agent.resources.repository.model import APT, DNF, RepositoryProperties
from ccm_agent.resources.repository.openpgp import parse_public_key
from ccm_agent.resources.repository.providers.apt import make_apt
from ccm_agent.resources.repository.providers.dnf import make_dnf
from ccm_agent.resources.repository.providers.existing import find_repositories
from ccm_agent.resources.systemd_unit.providers.existing import find_units
from ccm_agent.testing.runner import FakeRunner
from tests.support.openpgp_keys import FINGERPRINT, KEY
from tests.unit.resources.test_import_types import Host

UNITS = "/etc/systemd/system"
UNIT = "[Service]\nExecStart=/bin/true\n"
URL = "https://packages.example.net/debian"


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(monkeypatch)


# ---- units ----


async def test_units_and_drop_ins_are_found_with_their_content(host: Host) -> None:
    host.files.put(f"{UNITS}/t-app.service", UNIT)
    host.files.put(f"{UNITS}/ssh.service.d/limits.conf", "[Service]\nLimitNOFILE=9\n")

    found, left_out = await host.find(find_units)

    assert found == {
        "ssh.service.d/limits.conf": {"unit": "ssh.service", "drop_in": "limits.conf"},
        "t-app.service": {},
    }
    assert {one.name: one.content for one in host.found.resources}["t-app.service"] == UNIT.encode()
    assert left_out == []


async def test_symlinks_of_enable_and_units_of_packages_are_not_found(host: Host) -> None:
    host.files.put(f"{UNITS}/vendor.service", UNIT)
    host.owners = f"vendor: {UNITS}/vendor.service\n"
    host.conffiles = (
        f" {UNITS}/vendor.service {hashlib.md5(UNIT.encode(), usedforsecurity=False).hexdigest()}\n"
    )
    for name, target in (
        ("multi-user.target.wants/cron.service", "/usr/lib/systemd/system/cron.service"),
        ("sshd.service", "/lib/systemd/system/ssh.service"),
        ("app.target.requires/t-app.service", "../t-app.service"),
    ):
        host.files.put_symlink(f"{UNITS}/{name}", target)

    assert await host.find(find_units) == ({}, [])


@pytest.mark.parametrize(
    ("name", "content", "mode", "reason"),
    [
        ("t.service", UNIT, 0o600, "is private (mode 0600)"),
        ("t.service", UNIT, 0o755, "has mode 0755, but this type writes 0644"),
        (
            "t.service",
            "[Service]\nEnvironment=API_TOKEN=hunter2222\n",
            0o644,
            "contains what looks like a password or token",
        ),
        ("t.service", "", 0o644, "is empty, so the unit is masked"),
        ("t.service", "#" * (1 << 20) + "\n", 0o644, "is larger than 1 MiB, so it is not a unit"),
        ("t.service.d/notes.txt", "hello\n", 0o644, "is not the name of a drop-in"),
        ("-t.service", UNIT, 0o644, "is not a systemd unit"),
        ("notes", "hello\n", 0o644, "is not a systemd unit"),
        ("service.d/a.conf", UNIT, 0o644, "is not a systemd unit"),
        ("t.service.wants/a.service", UNIT, 0o644, "is in a directory in which systemd reads no units"),
        ("t.service.d/deep/a.conf", UNIT, 0o644, "is in a directory in which systemd reads no units"),
        ("t\x1b[2J.service", UNIT, 0o644, "the name must be printable"),
    ],
)
async def test_a_file_that_cannot_be_managed_is_named(
    host: Host, name: str, content: str, mode: int, reason: str
) -> None:
    host.files.put(f"{UNITS}/{name}", content, mode=mode)

    found, left_out = await host.find(find_units)

    assert found == {}
    assert [one for one, _ in left_out] == [name.replace("\x1b", "\ufffd")]
    assert reason in left_out[0][1]
    assert "hunter2222" not in str(left_out)


@pytest.mark.parametrize(
    ("name", "target", "reason"),
    [
        ("t.service", "/dev/null", "is masked, which this type does not support"),
        (
            "t.service",
            "/opt/app/t.service",
            f"is a symlink to another file; use `ccm import file:{UNITS}`",
        ),
        (
            "t.service.d/a.conf",
            "../shared.conf",
            f"is a symlink to another file; use `ccm import file:{UNITS}/t.service.d`",
        ),
    ],
)
async def test_a_symlink_that_enable_does_not_make_is_named(
    host: Host, name: str, target: str, reason: str
) -> None:
    host.files.put_symlink(f"{UNITS}/{name}", target)

    assert await host.find(find_units) == ({}, [(name, reason)])


@pytest.mark.parametrize(("mode", "is_left_out"), [(0o700, True), (0o750, True), (0o755, False)])
async def test_a_drop_in_of_a_private_folder_is_named(host: Host, mode: int, is_left_out: bool) -> None:
    host.files.put_directory(f"{UNITS}/ssh.service.d", mode=mode)
    host.files.put(f"{UNITS}/ssh.service.d/a.conf", "[Service]\nEnvironment=WORD=x\n")

    found, left_out = await host.find(find_units)

    assert bool(found) is not is_left_out
    assert left_out == [("ssh.service.d/a.conf", "is in a private directory")] * is_left_out


async def test_a_host_without_systemd_has_no_units(host: Host) -> None:
    assert await host.find(find_units) == ({}, [])


# ---- repositories ----


async def find_with(manager: str, context: ResourceContext, argument: str) -> ExistingResources:
    class Context:
        """The context of the test, with a port that no test uses."""

        def __getattr__(self, name: str) -> Any:
            return getattr(context, name)

    made: Any = Context()
    provider = make_apt(made) if manager == APT else make_dnf(made)
    return await find_repositories(context, argument, manager, provider)


def written(manager: str, name: str, **properties: Any) -> bytes:
    return FORMATS[manager].content(RepositoryProperties(name=name, ensure="present", **properties))


async def test_repositories_as_this_type_writes_them_are_found(host: Host) -> None:
    own: dict[str, Any] = {"uris": [URL], "suites": ["bookworm"], "components": ["main"]}
    content = written(APT, "tools", **own, signed_by="/usr/share/keyrings/tools.gpg", enabled=False)
    host.files.put("/etc/apt/sources.list.d/tools.sources", content)
    host.files.put("/usr/share/keyrings/tools.gpg", b"\x99public")

    found, left_out = await host.find(partial(find_with, APT))

    assert found["tools"] == {
        **own,
        "enabled": False,
        "signed_by": "/usr/share/keyrings/tools.gpg",
    }
    key, repository = host.found.resources
    assert (key.kind, key.name, key.content) == ("file", "/usr/share/keyrings/tools.gpg", b"\x99public")
    assert (repository.kind, repository.name) == ("", "tools")
    assert left_out == []


async def test_repositories_of_dnf_are_found(host: Host) -> None:
    content = written(DNF, "tools", uris=["file:///srv/rpm"], trusted=True, priority=10)
    host.files.put("/etc/yum.repos.d/tools.repo", content)

    found, left_out = await host.find(partial(find_with, DNF))

    assert found == {
        "tools": {
            "uris": ["file:///srv/rpm"],
            "priority": 10,
            "trusted": True,
        }
    }
    assert left_out == []


async def test_the_own_key_of_a_repository_is_found_with_its_fingerprint(host: Host) -> None:
    own: dict[str, Any] = {"uris": [URL], "suites": ["./"], "key": KEY, "key_fingerprint": FINGERPRINT}
    host.files.put("/etc/apt/sources.list.d/own.sources", written(APT, "own", **own))
    host.files.put("/etc/apt/keyrings/own.asc", parse_public_key(KEY.encode()).armored())

    found, left_out = await host.find(partial(find_with, APT))

    assert list(found) == ["own"]
    described = found["own"]
    assert parse_public_key(described.pop("key").encode()).fingerprint == FINGERPRINT
    assert described == {"uris": [URL], "suites": ["./"], "key_fingerprint": FINGERPRINT}
    assert left_out == []


async def test_a_repository_brings_no_more_than_the_file_of_its_key(host: Host) -> None:
    host.files.put("/srv/keys/a.gpg", "key")
    host.files.put("/srv/keys/b.gpg", "key")
    for name, signed_by in (("good", "/srv/keys/a.gpg"), ("bad", "/srv/keys")):
        path = f"/etc/apt/sources.list.d/{name}.sources"
        host.files.put(
            path, written(APT, name, uris=[URL], suites=["s"], components=["m"], signed_by=signed_by)
        )

    found, _ = await host.find(partial(find_with, APT))

    assert sorted(found.keys() - {"bad"}) == ["/srv/keys/a.gpg", "good"]


async def test_other_repositories_are_named(host: Host) -> None:
    folder = "/etc/apt/sources.list.d"
    content = written(APT, "tools", uris=[URL], suites=["./"], trusted=True)
    host.files.put(f"{folder}/debian.sources", f"Types: deb\nURIs: {URL}\n")  # the installer writes it
    host.files.put(f"{folder}/docker.list", f"deb {URL} bookworm main\n")
    host.files.put(f"{folder}/other.sources", f"Types: deb\nURIs: {URL}\n")
    host.files.put(f"{folder}/paid.sources", "URIs: https://me:hunter2222@packages.example.net/\n")
    host.files.put(f"{folder}/private.sources", content, mode=0o600)
    host.files.put(f"{folder}/-x.sources", content)
    host.files.put(f"{folder}/lost-key.sources", written(APT, "lost-key", uris=[URL], suites=["./"], key="k"))

    found, left_out = await host.find(partial(find_with, APT))

    foreign = f"differs from what this type writes; use `ccm import file:{folder}`"
    assert found == {}
    assert dict(left_out) == {
        "-x.sources": foreign,
        "docker.list": foreign,
        "lost-key": foreign,
        "other": foreign,
        "paid.sources": "contains what looks like a URL with a password",
        "private.sources": "is private (mode 0600)",
    }


# ---- directories ----


async def test_a_directory_is_found_with_its_files(host: Host) -> None:
    host.files.put("/srv/www/index.html", "<p>\n")
    host.files.put("/srv/www/css/a.css", "a {}\n")
    host.files.put_directory("/srv/www/empty")
    host.files.put_symlink("/srv/www/start.html", "index.html")

    found, left_out = await host.find(find_directory, "/srv/www")

    assert found["/srv/www"] == {
        "owner": "root",
        "group": "root",
        "file_mode": "0644",
        "directory_mode": "0755",
    }
    assert found["/srv/www/start.html"] == {"target": "index.html", "owner": "root", "group": "root"}
    tree = [(one.path, one.kind, one.content) for one in host.found.resources[0].tree]
    assert tree == [
        ("css", "directory", b""),
        ("empty", "directory", b""),
        ("css/a.css", "file", b"a {}\n"),
        ("index.html", "file", b"<p>\n"),
    ]
    assert left_out == []


@pytest.mark.parametrize(
    ("find", "argument"),
    [(find_directory, "/srv/app"), (find_files, "/srv/app"), (find_files, "/srv/app/a")],
)
@pytest.mark.parametrize("is_exchanged", [True, False])
async def test_the_mode_of_another_file_does_not_open_a_private_one(
    host: Host, find: Any, argument: str, is_exchanged: bool
) -> None:
    host.files.put("/srv/app/a", "of root\n", mode=0o600 if is_exchanged else 0o644)
    look = host.files.inspect

    async def exchange(paths: Sequence[str], **options: Any) -> list[FileInfo]:
        # the owner of the directory renames another file into the place of root's
        if is_exchanged and options["digest"]:
            host.files.put("/srv/app/a", "of the user\n", mode=0o644)
        return await look(paths, **options)

    host.files.inspect = exchange  # type: ignore[method-assign]
    _, left_out = await host.find(find, argument)

    kept = [one.content for found in host.found.resources for one in (found, *found.tree)]
    assert (b"of root\n" in kept) is not is_exchanged
    assert left_out == ([("/srv/app/a", "changed while it was read")] if is_exchanged else [])


async def test_a_name_does_not_forge_a_line_of_the_report(host: Host) -> None:
    host.files.put("/srv/app/a\n  file b: fine", "x\n")

    _, left_out = await host.find(find_files, "/srv/app")

    assert left_out == [("/srv/app/a\ufffd  file b: fine", "its name is not printable text")]


async def test_attributes_that_differ_are_named(host: Host) -> None:
    host.files.put("/srv/app/run", "#!/bin/sh\n", mode=0o755)
    host.files.put("/srv/app/data", "x\n", uid=33)

    found, left_out = await host.find(find_directory, "/srv/app")

    assert found == {"/srv/app": {"group": "root", "directory_mode": "0755"}}
    ((name, reason),) = left_out
    assert name == "/srv/app"
    # programs keep their mode without `file_mode`
    assert reason.startswith("differ among its entries: `owner` (")
    assert "file_mode" not in reason


async def test_modes_that_no_new_file_gets_are_named(host: Host) -> None:
    host.files.put("/srv/app/a", "x\n", mode=0o664)
    host.files.put("/srv/app/b", "x\n", mode=0o644)

    found, left_out = await host.find(find_directory, "/srv/app")

    assert "file_mode" not in found["/srv/app"]
    assert left_out[0][1].startswith("differ among its entries: `file_mode` (0644, 0664)")


async def test_secrets_and_private_directories_are_named_and_not_kept(host: Host) -> None:
    host.files.put("/srv/app/a", "x\n")
    host.files.put("/srv/app/key", "password = hunter2222\n")
    host.files.put_directory("/srv/app/private", mode=0o700)
    host.files.put("/srv/app/private/inner/b", "x\n")

    _, left_out = await host.find(find_directory, "/srv/app")

    assert [one.path for one in host.found.resources[0].tree] == ["a"]
    assert dict(left_out) == {
        "/srv/app/private": "is a private directory",
        "/srv/app/key": "contains what looks like a password or token",
        "/srv/app/private/inner/b": "is in a private directory",
    }


async def test_a_directory_of_the_system_is_named(host: Host) -> None:
    found, left_out = await host.find(find_directory, "/etc/cron.d")
    assert found["/etc/cron.d"]["owner"] == "root"
    assert left_out == []

    host.files.put("/opt/a", "x\n")
    found, left_out = await host.find(find_directory, "/opt")
    assert found == {}
    assert "is a system directory" in left_out[0][1]


@pytest.mark.parametrize("argument", ["", "srv", "/", "//srv", "/srv/../etc", "/srv/", "/etc/passwd"])
async def test_an_argument_that_is_no_directory_is_refused(host: Host, argument: str) -> None:
    with pytest.raises(UsageError, match=f"^directory:{argument}: "):
        await host.find(find_directory, argument)


async def test_a_directory_that_is_not_there_is_an_error(host: Host) -> None:
    with pytest.raises(FileError, match="/none: does not exist"):
        await host.find(find_directory, "/none")


# ---- containers ----

CONTAINERS = "/etc/containers/systemd"
IMAGE = f"docker.io/library/nginx@sha256:{'ab' * 32}"


def put_container(host: Host, name: str = "web", active: str = "active", **properties: Any) -> None:
    one = ContainerProperties(name=name, image=IMAGE, **properties)
    host.files.put_directory("/run/systemd/system")
    host.files.put(GENERATOR, "")
    host.files.put(f"{CONTAINERS}/{name}.container", render(one).decode())
    if one.environment:
        host.files.put(f"{CONTAINERS}/{name}.env", render_variables(one).decode(), mode=0o600)
    shown = {
        "Id": f"{name}.service",
        "LoadState": "loaded",
        "ActiveState": active,
        "FragmentPath": f"/run/systemd/generator/{name}.service",
        "SourcePath": f"{CONTAINERS}/{name}.container",
        "NeedDaemonReload": "no",
    }
    host.runner.when("systemctl", "show", stdout="".join(f"{key}={value}\n" for key, value in shown.items()))


@pytest.mark.parametrize(("active", "ensure"), [("active", {}), ("inactive", {"ensure": "stopped"})])
async def test_a_container_is_found_with_all_its_properties(
    host: Host, active: str, ensure: dict[str, str]
) -> None:
    properties: dict[str, Any] = {
        "enable": False,
        "command": ["serve", 'a "b"'],
        "environment_files": ["/etc/web.env"],
        "ports": ["127.0.0.1:8080:80"],
        "volumes": ["/srv/web:/srv:ro", "data:/data"],
        "network": "host",
        "user": "1:2",
        "labels": {"team": "web 50%"},
        "memory": "512m",
        "restart": "always",
    }
    put_container(host, active=active, **properties)

    assert await host.find(find_containers) == ({"web": {"image": IMAGE, **properties, **ensure}}, [])


FOREIGN = f"use `ccm import file:{CONTAINERS}/web.container`"


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (f"@sha256:{'ab' * 32}", ":1", "its image `docker.io/library/nginx:1` has no digest, so its content may change"),
        ("Image=", "AutoUpdate=registry\nImage=", f"has `AutoUpdate`, which this type does not have; {FOREIGN}"),
        ("[Service]", "# a note\n[Service]", f"is not as this type writes it; {FOREIGN}"),
        ("ContainerName=web", "ContainerName=other", f"is not as this type writes it; {FOREIGN}"),
        ("Image=", "PodmanArgs=--password=hunter22\nImage=", "contains what looks like a password or token"),
        ("Image=", "PodmanArgs=--privileged\nImage=", f"is not as this type writes it; {FOREIGN}"),
    ],
)  # fmt: skip
async def test_a_quadlet_that_the_type_cannot_write_is_named(
    host: Host, old: str, new: str, reason: str
) -> None:
    put_container(host)
    path = f"{CONTAINERS}/web.container"
    host.files.put(path, host.files.nodes[path].content.decode().replace(old, new, 1))

    assert await host.find(find_containers) == ({}, [("web", reason)])


async def test_a_container_with_variables_is_named_without_them(host: Host) -> None:
    put_container(host, environment=["LEVEL=info"])

    reason = "has variables, which are private (mode 0600)"
    assert await host.find(find_containers) == ({}, [("web", reason)])


@pytest.mark.parametrize(
    "properties",
    [
        {"command": ["sh", "-c", "echo # ; app --password=hunter22"]},
        {"command": ["app", "--password", "hunter22"]},
        {"labels": {"db_password": "hunter22"}},
        {"health_command": "curl https://a:hunter22@b.example"},
    ],
)
async def test_a_container_with_a_secret_in_a_property_is_named_without_it(
    host: Host, properties: dict[str, Any]
) -> None:
    put_container(host, **properties)

    found, [(name, reason)] = await host.find(find_containers)

    assert (found, name) == ({}, "web")
    assert "contains what looks like" in reason
    assert "hunter22" not in reason


async def test_a_container_whose_unit_has_failed_is_named(host: Host) -> None:
    put_container(host, active="failed")

    assert await host.find(find_containers) == (
        {},
        [("web", "its unit has failed, so whether it should run is unknown")],
    )


async def test_a_container_without_a_known_state_is_named(host: Host) -> None:
    host.runner.when("systemctl", "show", error="no such program")
    put_container(host)

    assert await host.find(find_containers) == ({}, [("web", "systemd or podman does not show its state")])


async def test_a_container_that_an_apply_would_change_is_named(host: Host) -> None:
    put_container(host, volumes=["/srv/web/data:/srv"])
    host.files.put_directory("/srv/web")
    host.files.put_symlink("/srv/web/data", "/etc")
    host.files.nodes["/srv/web/data"].uid = 1000
    _, [(_, reason)] = await host.find(find_containers)
    assert "is a symlink that a user other than root can replace" in reason


async def test_other_files_beside_quadlets_are_named_and_not_opened(host: Host) -> None:
    put_container(host)
    host.files.put(f"{CONTAINERS}/web.container.d/10.conf", "[Container]\nNetwork=host\n")
    host.files.put(f"{CONTAINERS}/data.volume", "[Volume]\n")
    host.files.put(f"{CONTAINERS}/sub/x.container", "[Container]\n")
    host.files.put(f"{CONTAINERS}/a\nb.container", "[Container]\n")
    host.files.put_fifo(f"{CONTAINERS}/pipe.container")
    host.files.put_symlink(f"{CONTAINERS}/link.container", "/etc/shadow")
    host.files.put(f"{CONTAINERS}/huge.container", "#" * (1 << 20) + "\n")

    found, left_out = await host.find(find_containers)

    other = f"is not the quadlet of a container; use `ccm import file:{CONTAINERS}`"
    assert found == {}
    assert dict(left_out) == {
        "web": f"has drop-ins, which this type does not have; use `ccm import file:{CONTAINERS}`",
        "data.volume": other,
        "sub/x": other,
        "a\ufffdb": "has a name that this type does not have",
        "pipe": "is a FIFO, socket or device",
        "link": "is a symlink",
        "huge": "is larger than 1 MiB",
    }


async def test_a_host_without_quadlets_has_no_containers(host: Host) -> None:
    assert await host.find(find_containers) == ({}, [])

    host.files.put_symlink(CONTAINERS, "/home/alice")
    assert await host.find(find_containers) == ({}, [(CONTAINERS, "is not a directory")])


async def test_quadlets_of_packages_are_not_found(host: Host) -> None:
    put_container(host)
    path = f"{CONTAINERS}/web.container"
    host.owners = f"web: {path}\n"
    digest = hashlib.md5(host.files.nodes[path].content, usedforsecurity=False).hexdigest()
    host.conffiles = f" {path} {digest}\n"

    assert await host.find(find_containers) == ({}, [])


# ---- keys and blocks of a file ----

TEXT = "# BEGIN ccm\nport = 1\n# END ccm\n"
FINDERS = pytest.mark.parametrize(
    ("find", "kept"),
    [
        pytest.param(find_keys, {"values": {"port": "1"}}, id="config"),
        pytest.param(find_blocks, {"block": "port = 1\n"}, id="edit"),
    ],
)


@FINDERS
@pytest.mark.parametrize("is_replaceable", [False, True])
async def test_a_file_below_a_symlink_is_read_only_if_root_alone_can_replace_it(
    host: Host, find: Any, kept: dict[str, Any], is_replaceable: bool
) -> None:
    host.files.put("/srv/real/app.ini", TEXT)
    host.files.put_symlink("/srv/link", "/srv/real")
    host.files.nodes["/srv/link"].uid = 1000 * is_replaceable

    assert await host.find(find, "/srv/link/app.ini") == (
        ({}, [("/srv/link/app.ini", "/srv/link is a symlink that another user can replace")])
        if is_replaceable
        else ({"/srv/link/app.ini": kept}, [])
    )


@FINDERS
@pytest.mark.parametrize("after", [TEXT, TEXT.replace("1", "2")])
async def test_a_private_file_that_is_replaced_by_a_readable_one_is_not_imported(
    host: Host, monkeypatch: pytest.MonkeyPatch, find: Any, kept: dict[str, Any], after: str
) -> None:
    host.files.put("/etc/app.ini", TEXT, mode=0o600)
    read = host.files.read

    async def read_and_replace(path: str, limit_bytes: int) -> bytes:
        content = await read(path, limit_bytes)
        host.files.put("/etc/app.ini", after)
        return content

    monkeypatch.setattr(host.files, "read", read_and_replace)

    # the same content is readable by all users afterwards, so it is not secret
    assert await host.find(find, "/etc/app.ini") == (
        ({"/etc/app.ini": kept}, [])
        if after == TEXT
        else ({}, [("/etc/app.ini", "changed while it was read")])
    )


@FINDERS
async def test_a_file_as_its_package_installed_it_is_not_imported(
    host: Host, find: Any, kept: dict[str, Any]
) -> None:
    host.files.put("/etc/app.ini", TEXT)
    assert await host.find(find, "/etc/app.ini") == ({"/etc/app.ini": kept}, [])

    digest = hashlib.md5(TEXT.encode(), usedforsecurity=False).hexdigest()
    host.runner = FakeRunner()
    host.owners, host.conffiles = "app: /etc/app.ini\n", f" /etc/app.ini {digest}\n"
    assert await host.find(find, "/etc/app.ini") == ({}, [("/etc/app.ini", "is as its package installed it")])


async def test_blocks_that_a_manifest_cannot_have_are_named(host: Host) -> None:
    named = b"# BEGIN ccm: caf\xe9\nx\n# END ccm: caf\xe9\n"
    host.files.put(
        "/etc/hosts", named + b"# BEGIN ccm: b\n\xff\n# END ccm: b\n# BEGIN ccm: c\nx\n# END ccm: c\n"
    )

    found, left_out = await host.find(find_blocks, "/etc/hosts")

    assert found == {"c": {"path": "/etc/hosts", "block": "x\n"}}
    assert left_out == [
        ("/etc/hosts", "its block `caf\ufffd` is not UTF-8"),
        ("/etc/hosts", "its block `b` is not UTF-8"),
    ]


@pytest.mark.parametrize("count", [100, 101])
async def test_a_file_with_too_many_blocks_is_named(host: Host, count: int) -> None:
    host.files.put("/etc/hosts", "".join(f"# BEGIN ccm: {n}\n# END ccm: {n}\n" for n in range(count)))

    found, left_out = await host.find(find_blocks, "/etc/hosts")

    assert (len(found), [reason for _, reason in left_out]) == (
        (100, []) if count == 100 else (0, ["has 101 blocks, and at most 100 are imported"])
    )


async def test_a_file_that_an_apply_would_change_is_not_imported_by_its_keys(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No such file is known, so the function that changes files is replaced."""
    host.files.put("/etc/app.json", '{"a": 1}')
    monkeypatch.setattr(
        "ccm_agent.resources.config.providers.existing.change_content",
        lambda _wanted, content: content + b"\n",
    )

    assert await host.find(find_keys, "/etc/app.json") == (
        {},
        [("/etc/app.json", "an apply would change it; use file:/etc/app.json")],
    )
