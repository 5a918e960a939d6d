"""Import on a secured fleet: which operators may ask, what the node's policy leaves out, and whose answers are taken."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from ccm_agent.clikit.terminal import Terminal
from ccm_agent.model.records.host_import import FILE_BYTES
from ccm_ctl.app import Application
from ccm_ctl.fleet.imports.answers import ask_resources
from ccm_ctl.fleet.nodes.discovery import TargetSpec, resolve
from tests.support.fleet import Done
from tests.support.secured import Secured, secured_fleet

pytestmark = [pytest.mark.nats, pytest.mark.timeout(180)]

POLICY = """\
default: deny
rules:
  - name: no plans
    signers: [dan]
    deny: [plan]
  - name: plans only
    signers: [pat]
    allow: [plan, check]
  - name: no accounts
    signers: [bob]
    allow: [all]
    forbid: {types: [group], services: ["*"]}
  - name: administrator
    signers: [tester]
    allow: [all]
"""
IMPORT = ("import", "-t", "role=web", "--types", "group,host", "--json", "--out")


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """web1 with role=web; bob, ann and ida may apply there, pat and dan plan, lou looks, sam maintains, and eli runs commands."""
    with secured_fleet(tmp_path_factory.mktemp("secured")) as one:
        for name, *right in (
            ("pat", "--plan", "role=web"),
            ("dan", "--plan", "role=web"),
            ("lou",),
            ("sam", "--maintain", "role=web"),
            ("eli", "--exec", "role=web"),
            ("far", "--plan", "role=db"),
            ("ann", "--apply", "role=web"),
            ("ida", "--apply", "role=web"),
        ):
            one.give("operator", name, *right)
        one.fleet.wait_for(
            lambda: one.as_("eli", "exec", "-t", "role=web", "--yes", "--", "true").code == 0,
            "the node to know eli",
        )
        yield one


@pytest.mark.parametrize("who", ["bob", "pat", "tester"])
def test_operators_who_may_plan_import(secured: Secured, tmp_path: Path, who: str) -> None:
    done = secured.as_(who, *IMPORT, str(tmp_path / "site"))

    assert done.code == 0, done.out + done.err
    [record] = done.named("import")
    assert record["nodes"] == {"web1": "imported"}
    assert (tmp_path / "site" / "manifest.yaml").is_file()


@pytest.mark.parametrize("who", ["lou", "sam", "eli", "far", "web1"])
def test_others_do_not_import(secured: Secured, tmp_path: Path, who: str) -> None:
    """Operators who look, maintain, run commands or plan elsewhere, and the holder of a node's stolen key."""
    done = secured.as_(who, *IMPORT, str(tmp_path / "site"))

    assert done.code == 1, done.out
    assert "the broker does not allow" in done.err or "lacks the right" in done.err, done.err
    assert list(tmp_path.iterdir()) == []


def test_policy_refuses_operators_and_leaves_types_out(secured: Secured, tmp_path: Path) -> None:
    agent = secured.fleet.agents["web1"]
    policy = agent.directory / "policy.yaml"
    policy.write_text(POLICY)
    assert agent.process is not None
    agent.process.send_signal(1)
    secured.fleet.wait_for(lambda: "the policy was loaded" in agent.log, "the policy to be read")
    try:
        refused = secured.as_("pat", *IMPORT, str(tmp_path / "pat"))
        no_plan = secured.as_("dan", *IMPORT, str(tmp_path / "dan"))
        part = secured.as_("bob", *IMPORT, str(tmp_path / "bob"))
        whole = secured.as_("tester", *IMPORT, str(tmp_path / "tester"))
    finally:
        policy.unlink()
        agent.process.send_signal(1)
        secured.fleet.wait_for(lambda: "the policy file is gone" in agent.log, "the policy to be gone")

    assert refused.code == no_plan.code == 2
    assert "no rule of the node's policy allows pat to import resources now" in refused.err
    assert "the rule `no plans` (policy.yaml:3) of the node's policy denies dan to plan" in no_plan.err
    assert not {"pat", "dan"} & {one.name for one in tmp_path.iterdir()}
    assert part.code == 0, part.err
    [record] = part.named("import")
    reason = "the rule `no accounts` (policy.yaml:9) of the node's policy does not allow resources of the type group"
    assert {"type": "group", "name": "*", "reason": reason} in record["left_out"]["web1"]
    written = {path.name: path.read_text() for path in (tmp_path / "bob" / "layers").rglob("*.yaml")}
    assert written
    assert "group.yaml" not in written
    assert "group" not in "".join(written.values())
    assert whole.code == 0, whole.err
    left_out = whole.named("import")[0]["left_out"].get("web1", [])
    assert [one for one in left_out if one["name"] == "*"] == []


FILES_POLICY = """\
default: deny
rules:
  - name: some files
    signers: [bob]
    allow: [all]
    forbid: {paths: [APP/forbidden.conf], sources: [APP/unread.conf]}
  - name: no diffs
    signers: [ann]
    allow: [all]
    withhold: [diff]
  - name: looks
    signers: [ida]
    allow: [plan, import]
  - name: administrator
    signers: [tester]
    allow: [all]
"""
CONTENTS = {
    "app.conf": b"port 80\n",
    "binary": bytes(range(256)) * 1024,
    "empty": b"",
    "forbidden.conf": b"for root alone\n",
    "unread.conf": b"not to be read\n",
    "conf.d/a.conf": b"{{ no template }}\n",
}
KEY = b"-----BEGIN PRIVATE KEY-----\nMIIEvQ\n"


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of files that no package installed, some of them secret, and entries that are not files."""
    app = tmp_path_factory.mktemp("host") / "app"
    (app / "conf.d").mkdir(parents=True)
    for name, content in CONTENTS.items():
        (app / name).write_bytes(content)
    for name in ("key.pem", "private.conf", "line\nbreak", "large"):
        (app / name).write_bytes(KEY if name == "key.pem" else b"x\n")
    (app / "large").write_bytes(b"x" * (FILE_BYTES + 1))
    for path in (app, *app.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    (app / "private.conf").chmod(0o640)
    (app / "link").symlink_to("app.conf")
    (app / "out").symlink_to("/etc/passwd")
    os.mkfifo(app / "fifo")
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(app / "socket"))
    return app


@contextlib.contextmanager
def with_policy(secured: Secured, text: str) -> Iterator[None]:
    agent = secured.fleet.agents["web1"]
    policy = agent.directory / "policy.yaml"
    assert agent.process is not None

    def count(words: str) -> int:
        return agent.log.count(words)

    loaded, gone = count("the policy was loaded"), count("the policy file is gone")
    policy.write_text(text)
    agent.process.send_signal(1)
    secured.fleet.wait_for(lambda: count("the policy was loaded") > loaded, "the policy to be read")
    try:
        yield
    finally:
        policy.unlink()
        agent.process.send_signal(1)
        secured.fleet.wait_for(lambda: count("the policy file is gone") > gone, "the policy to be gone")


def import_files(secured: Secured, who: str, app: Path, out: Path, kind: str = "file") -> Done:
    words = ("import", "-t", "role=web", "--types", f"{kind}:{app}", "--json", "--out", str(out))
    return secured.as_(who, *words)


def written(out: Path, app: Path, folder: str = "files") -> dict[str, bytes]:
    """The contents in a site, by their path below the directory."""
    top = out / "layers/common" / folder / str(app).lstrip("/")
    return {str(path.relative_to(top)): path.read_bytes() for path in top.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("kind", "folder"), [("file", "files"), ("directory", "directories")])
def test_files_are_imported_without_secrets_and_change_nothing(
    secured: Secured, app: Path, tmp_path: Path, kind: str, folder: str
) -> None:
    out = tmp_path / "site"

    done = import_files(secured, "bob", app, out, kind)

    assert done.code == 0, done.out + done.err
    [record] = done.named("import")
    assert (record["nodes"], record["changes"]) == ({"web1": "imported"}, {})
    assert written(out, app, folder) == CONTENTS
    reasons = {one["name"].removeprefix(f"{app}/"): one["reason"] for one in record["left_out"]["web1"]}
    assert reasons == {
        "fifo": "is a FIFO, socket or device",
        "socket": "is a FIFO, socket or device",
        "key.pem": "contains what looks like a private key",
        "private.conf": "is private (mode 0640)",
        "large": "is larger than 1 MiB",
        "line\ufffdbreak": "its name is not printable text",
    }
    links = re.findall(r"^ +- (/.*/(?:link|out)):$", (out / f"layers/common/{kind}.yaml").read_text(), re.M)
    assert links == [f"{app}/link", f"{app}/out"]
    everything = b"".join(path.read_bytes() for path in out.rglob("*") if path.is_file())
    assert b"PRIVATE KEY" not in everything
    assert b"root:" not in everything


@pytest.mark.parametrize("who", ["pat", "lou", "sam", "eli", "far", "web1"])
def test_operators_who_may_not_apply_read_no_files(
    secured: Secured, app: Path, tmp_path: Path, who: str
) -> None:
    """Operators who plan, look, maintain or run commands, and the holder of a node's stolen key; bob is the control above."""
    done = import_files(secured, who, app, tmp_path / "site")

    assert done.code == (2 if who == "pat" else 1), done.out
    if who == "pat":
        assert (
            "files are imported only for operators who may also apply: pat may plan here, but not apply"
            in done.err
        )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["repository", "systemd_unit", "container"])
def test_types_that_read_files_need_the_right_to_apply(secured: Secured, tmp_path: Path, kind: str) -> None:
    words = ("import", "-t", "role=web", "--json", "--types", kind, "--out")

    plans = secured.as_("pat", *words, str(tmp_path / "pat"))
    applies = secured.as_("bob", *words, str(tmp_path / "bob"))

    assert (plans.code, "only for operators who may also apply" in plans.err) == (2, True), plans.err
    assert applies.code == 0 or applies.err.startswith("nothing to import"), applies.err


def test_policy_decides_which_files_are_read(secured: Secured, app: Path, tmp_path: Path) -> None:
    with with_policy(secured, FILES_POLICY.replace("APP", str(app))):
        part = import_files(secured, "bob", app, tmp_path / "bob")
        whole = import_files(secured, "tester", app, tmp_path / "tester")
        withheld = import_files(secured, "ann", app, tmp_path / "ann")
        no_apply = import_files(secured, "ida", app, tmp_path / "ida")

    assert part.code == 0, part.out + part.err
    assert written(tmp_path / "bob", app).keys() == CONTENTS.keys() - {"forbidden.conf", "unread.conf"}
    [record] = part.named("import")
    reasons = {one["name"].removeprefix(f"{app}/"): one["reason"] for one in record["left_out"]["web1"]}
    assert "does not allow the path" in reasons["forbidden.conf"]
    assert "does not allow to read" in reasons["unread.conf"]
    assert whole.code == 0, whole.err
    assert written(tmp_path / "tester", app) == CONTENTS
    assert withheld.code == no_apply.code == 2
    assert "withholds diffs, so no files are imported" in withheld.err
    assert "no rule of the node's policy allows ida to apply now" in no_apply.err.replace("\n", " ")
    assert {one.name for one in tmp_path.iterdir()} == {"bob", "tester"}


def test_keys_of_a_file_are_imported_without_secrets_and_need_the_rights_to_apply_and_to_read(
    secured: Secured, app: Path, tmp_path: Path
) -> None:
    top = app.with_name("keys")
    top.mkdir()
    for name in ("app.ini", "forbidden.conf", "unread.conf"):
        (top / name).write_text("[db]\nhost = db1\npassword = hunter2\n")
        (top / name).chmod(0o644)
    words = ",config:".join(str(top / name) for name in ("app.ini", "forbidden.conf", "unread.conf"))

    whole = import_files(secured, "bob", Path(words), tmp_path / "whole", "config")
    plans = import_files(secured, "pat", Path(words), tmp_path / "plans", "config")
    with with_policy(secured, FILES_POLICY.replace("APP", str(top))):
        part = import_files(secured, "bob", Path(words), tmp_path / "part", "config")

    assert whole.code == 0, whole.out + whole.err
    [record] = whole.named("import")
    assert record["changes"] == {}
    reason = "its key `db.password` contains what looks like a password or token"
    assert {one["reason"] for one in record["left_out"]["web1"]} == {reason}
    written = "".join(path.read_text() for path in (tmp_path / "whole").rglob("*.yaml"))
    assert written.count("db.host: db1") == 3
    assert "hunter2" not in written
    assert (plans.code, "only for operators who may also apply" in plans.err) == (2, True)
    assert part.code == 0, part.out + part.err
    [record] = part.named("import")
    reasons = {(Path(one["name"]).name, one["reason"]) for one in record["left_out"]["web1"]}
    # the names of the keys of a file that the policy forbids are not reported
    assert [name for name, one in reasons if one == reason] == ["app.ini"]
    assert {name for name, one in reasons if "does not allow" in one} == {"forbidden.conf", "unread.conf"}
    written = "".join(path.read_text() for path in (tmp_path / "part").rglob("*.yaml"))
    assert written.count("db.host: db1") == 1


def test_operator_cannot_fetch_a_content_that_the_node_left_out(secured: Secured, app: Path) -> None:
    """A request of an own making names the digests of a secret and of a file elsewhere; that of a plain file is the control."""
    names = (app / "app.conf", app / "key.pem", app / "private.conf", Path("/etc/hostname"))
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in names if path.is_file()]

    answer = asyncio.run(ask_contents(secured, f"file:{app}", digests))

    assert answer == {digests[0]: CONTENTS["app.conf"]}


async def ask_contents(secured: Secured, word: str, digests: list[str]) -> dict[str, bytes]:
    """What web1 sends to bob for these digests."""
    environ = {**os.environ, **secured.fleet.environ, "CCM_CREDS": str(secured.directory / "bob.creds")}
    application = Application(Terminal("ccmctl", environ={}), environ)
    async with application.broker() as broker:
        _, resolved = await resolve(broker.fleet, TargetSpec(targets=("role=web",)))
        answers = await ask_resources(broker.fleet, [word], resolved, contents=digests)
    found = answers["web1"].found
    assert found is not None, answers
    assert (found.resources, found.left_out) == ([], [])
    return found.contents
