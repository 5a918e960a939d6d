"""What another user of a node gets of an agent's files: its state after runs, and its folder while it is used."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.fleet import Fleet

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(180),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user"),
]

NOBODY = 65534
SECRET = "canary-5d1f"
KINDS = {"bundles", "data", "plans", "spool", "undo"}
"""Folders that the state of an agent has after these runs, among others."""


def as_user(user: int, attempt: Callable[[], list[str]]) -> list[str]:
    """What a function returns in a process of another user."""
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
            os.write(theirs, json.dumps(attempt()).encode())
        finally:
            os._exit(0)
    os.close(theirs)
    with os.fdopen(ours, "rb") as pipe:
        found: list[str] = json.loads(pipe.read())
    os.waitpid(child, 0)
    return found


def successes(paths: list[Path]) -> list[str]:
    """What succeeds of: reading, listing, changing, replacing and linking each path."""
    done: list[str] = []

    def attempt(what: str, path: Path, action: Callable[[], object]) -> None:
        try:
            action()
        except OSError:
            return
        done.append(f"{what} {path}")

    for path in paths:
        attempt("list", path, lambda path=path: os.listdir(path))
        attempt("read", path, lambda path=path: os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK)))
        attempt("write", path, lambda path=path: os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK)))
        attempt("chmod", path, lambda path=path: path.chmod(0o777))
        attempt("plant a link", path, lambda path=path: os.symlink("/etc/shadow", path / "planted"))
        attempt("rename", path, lambda path=path: os.rename(path, f"{path}.moved"))
        attempt("link", path, lambda path=path: os.link(path, f"{path.parent}/linked"))
        attempt("remove", path, lambda path=path: os.unlink(path))
    return done


@pytest.fixture
def reachable(trio: Fleet) -> Iterator[Path]:
    """A copy of an agent's state where every user can reach it, and below it whatever the agent lets in."""
    data = trio.write("data.json", json.dumps({"data": {"db": {"password": SECRET}}}))
    assert trio.ctl("data", "put", "common", data).code == 0
    web1 = trio.agents["web1"]
    for number, mode in enumerate(("0600", "0644")):
        path = web1.directory / f"app{number}"
        properties = {"ensure": "present", "owner": "root", "group": "root", "mode": mode}
        content = f"{number} {{{{ lookup('data.db.password') }}}}\n"
        site = {"ccm": {"resources": [{"file": [{str(path): {**properties, "content": content}}]}]}}
        manifest = trio.write("site.json", json.dumps(site))
        command = [manifest, "--targets", "node=web1", "--data", "kv://CCM_DATA/common"]
        assert trio.ctl("plan", *command, "--out", str(web1.directory / f"plan{number}")).code in (0, 4)
        assert trio.ctl("apply", *command, "--yes").code == 0
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        umask = os.umask(0)
        try:
            shutil.copytree(web1.directory / "state", f"{name}/state", symlinks=True, ignore=_sockets)
        finally:
            os.umask(umask)
        yield Path(name) / "state"


def _sockets(folder: str, names: list[str]) -> set[str]:
    return {name for name in names if (Path(folder) / name).is_socket()}


def test_another_user_gets_and_changes_nothing_of_an_agents_state(reachable: Path) -> None:
    folders = {path.name for path in reachable.iterdir()}
    paths = [reachable, *sorted(reachable.rglob("*"))]
    below = [path for path in paths if path != reachable]

    stolen = as_user(NOBODY, lambda: successes(paths))
    # also if the state folder itself lets everyone in, the files and folders in it do not
    reachable.chmod(0o755)
    inside = as_user(NOBODY, lambda: successes(below))
    own = as_user(0, lambda: successes(below))

    assert folders >= KINDS
    assert stolen == []
    assert inside == []
    assert len(own) > 2 * len(below)
