"""`ccmctl import`, with nodes that report what a test says."""

from __future__ import annotations

import unicodedata
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins

from ccm_agent.model.codec import decode_yaml
from ccm_agent.model.records.host_import import (
    FoundContent,
    FoundResource,
    HostResources,
    LeftOutResource,
    split_resources,
)
from tests.support.controller import Desk, FakeNode, Said, event
from tests.support.signed_desk import Crew, SignedDesk

HOSTILE = "x\x1b]0;owned\x07\u202e\r\nline"


def a_host(name: str = "peer", **properties: Any) -> FoundResource:
    return FoundResource(type="host", name=name, properties={"address": "10.0.0.1"} | properties)


def reported(*resources: FoundResource, left_out: list[LeftOutResource] | None = None) -> dict[str, Any]:
    """The body of an answer."""
    [part] = split_resources(HostResources(resources=list(resources), left_out=left_out or []))
    body: dict[str, Any] = to_builtins(part)
    return body


def a_node(name: str, *resources: FoundResource, **fields: Any) -> FakeNode:
    facts = {"role": "web", "name": name}
    return FakeNode(name, facts, status=reported(*resources), **fields)


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silent nodes are not waited for."""
    monkeypatch.setattr("ccm_ctl.fleet.imports.answers.ACCEPT_S", 0.4)


def imported(desk: Desk, out: Path, *more: str) -> Said:
    return desk.ccmctl("import", "--all", "--types", "host", "--out", str(out), *more)


def test_screen_of_an_import(tmp_path: Path) -> None:
    leaky = LeftOutResource(type="host", name="secret", reason="contains what looks like an access key")
    nodes = [
        a_node("web1", a_host(), a_host("one")),
        FakeNode("web2", {"role": "web", "name": "web2"}, status=reported(a_host(), left_out=[leaky])),
        FakeNode("web3", {"role": "web", "name": "web3"}, is_present=False),
    ]

    said = imported(Desk(*nodes), tmp_path / "site")

    assert said.code == 3, said.err
    assert said.out.replace(str(tmp_path), "") == (
        "/site/manifest.yaml: 2 resources of 2 nodes in 2 layers\n"
        "LAYER   RESOURCES  FOLDER\n"
        "common          1  layers/common\n"
        "web1            1  layers/web1\n"
        "offline: web3\n"
        "left out:\n"
        "  web2: host secret: contains what looks like an access key\n"
        "plan: 0 of 2 nodes would change\n"
    )


def test_what_an_apply_would_change_is_named(tmp_path: Path) -> None:
    change = event("peer", 2, type="host", changed=True, noop_message="Would have changed the address")

    said = imported(Desk(a_node("web1", a_host(), does=[change])), tmp_path / "site", "--json")

    assert said.code == 2, said.err
    [record] = said.named("import")
    assert record["changes"] == {"web1": {"host#peer": "Would have changed the address"}}


def test_hostile_resources_are_left_out_of_the_files_and_the_others_stay(tmp_path: Path) -> None:
    hostile = [
        a_host("{{ Facts.x }}"),
        a_host("braces", comment="${ lookup('facts.x') }"),
        a_host(HOSTILE),
        a_host("defaults"),
        a_host("command", health_checks=[{"command": "/bin/evil"}]),
        a_host("huge", address=[10**30]),
    ]

    said = imported(Desk(a_node("web1", a_host(), *hostile)), tmp_path / "site", "--json")

    assert said.code == 0, said.err
    written = "".join(path.read_text() for path in (tmp_path / "site").rglob("layers/*/*.yaml"))
    assert "peer" in written
    assert not any(word in written for word in ("{{", "${", "evil", "owned", "defaults", "huge"))
    [record] = said.named("import")
    assert len(record["left_out"]["web1"]) == len(hostile)


@pytest.mark.parametrize(
    "body",
    [
        {},
        reported() | {"parts": 10**9},
        reported() | {"digest": "0" * 64},
        reported(FoundResource(type="file", name="/etc/shadow", properties={})),
    ],
    ids=["no part", "many parts", "another digest", "another type"],
)
def test_hostile_answer_is_an_error_of_its_node_and_the_other_is_imported(
    tmp_path: Path, body: dict[str, Any]
) -> None:
    evil = FakeNode("evil", {"role": "web", "name": "evil"}, status=body)

    said = imported(Desk(a_node("web1", a_host()), evil), tmp_path / "site", "--json")

    assert said.code == 2, said.err
    [record] = said.named("import")
    assert record["nodes"] == {"web1": "imported", "evil": "refused"}
    assert (
        record["reasons"]["evil"].startswith("its answer cannot be read: ")
        or "type file" in record["reasons"]["evil"]
    )


def test_terminal_obeys_no_text_of_a_node(tmp_path: Path) -> None:
    told = LeftOutResource(type=HOSTILE, name=HOSTILE, reason=HOSTILE)
    change = event(HOSTILE, 2, type="host", changed=True, noop_message=HOSTILE)
    node = FakeNode(
        "web1", {"name": "web1"}, [change], status=reported(a_host(), a_host(HOSTILE), left_out=[told])
    )

    for form in ((), ("--json",)):
        said = imported(Desk(node), tmp_path / f"site{len(form)}", *form)

        text = (said.out + said.err).replace("\n", "")
        assert "owned" in text
        assert {one for one in text if unicodedata.category(one) in ("Cc", "Cf", "Zl", "Zp")} == set()


def test_answers_count_only_with_the_signature_of_the_node(tmp_path: Path) -> None:
    crew = Crew()
    genuine = a_node("web1", a_host(), root=crew.root)
    forged = a_node("web2", a_host("evil"))

    said = imported(SignedDesk(crew, genuine, forged), tmp_path / "site", "--json")

    [record] = said.named("import")
    assert record["nodes"]["web1"] == "imported", said.err
    assert record["nodes"]["web2"] == "forged"
    assert "evil" not in "".join(path.read_text() for path in (tmp_path / "site").rglob("*.yaml"))


def test_groups_of_all_layers_come_before_users(tmp_path: Path) -> None:
    """On a new host, a user that all nodes have is in a group that has another number on each."""
    user = FoundResource(type="user", name="app", properties={"group": "app"})

    def group(number: int) -> FoundResource:
        return FoundResource(type="group", name="app", properties={"gid": number})

    desk = Desk(a_node("web1", group(1001), user), a_node("web2", group(1002), user))
    said = desk.ccmctl("import", "--all", "--types", "user,group", "--out", str(tmp_path / "site"))

    assert said.code == 0, said.err
    manifest = decode_yaml((tmp_path / "site" / "manifest.yaml").read_text())
    [applied] = manifest["ccm"]["resources"]
    assert [name for one in applied["apply"] for name in one] == [
        "layers/{{ item }}/group.yaml",
        "layers/{{ item }}/user.yaml",
    ]
    assert manifest["data"] == {"group": [], "user": ["common"]}
    assert manifest["overrides"] == {"name:web1": {"group": ["web1"]}, "name:web2": {"group": ["web2"]}}


def test_nodes_that_no_fact_tells_apart_are_an_error_that_names_the_command(tmp_path: Path) -> None:
    nodes = [FakeNode(name, {"role": "web"}, status=reported(a_host(name))) for name in ("web1", "web2")]

    said = imported(Desk(*nodes), tmp_path / "site")

    assert said.code == 1
    assert "`ccmctl facts set web1 name=web1`" in said.err
    assert not (tmp_path / "site").exists()


def test_node_cannot_name_another_one_in_its_layer(tmp_path: Path) -> None:
    evil = FakeNode("evil", {"role": "web", "name": "db1"}, status=reported(a_host(), a_host("planted")))

    said = imported(Desk(a_node("web1", a_host()), evil), tmp_path / "site")

    assert said.code == 1
    assert "so they have no layers: evil; leave them out" in said.err
    assert not (tmp_path / "site").exists()


def test_node_with_nothing_of_its_own_needs_no_name(tmp_path: Path) -> None:
    evil = FakeNode("evil", {"role": "web", "name": "db1"}, status=reported(a_host()))

    said = imported(Desk(a_node("web1", a_host(), a_host("own")), evil), tmp_path / "site")

    assert said.code == 0, said.err
    assert "web1            1" in said.out


def test_assigned_fact_may_name_a_node_as_the_operator_likes(tmp_path: Path) -> None:
    nodes = [FakeNode(name, {"role": "web"}, status=reported(a_host(name))) for name in ("web1", "web2")]
    desk = Desk(*nodes)
    for name in ("web1", "web2"):
        assert desk.ccmctl("facts", "set", name, f"shop=s-{name}").code == 0

    said = imported(desk, tmp_path / "site")

    assert said.code == 0, said.err
    assert "shop:s-web1" in (tmp_path / "site/manifest.yaml").read_text()


def test_site_that_cannot_be_written_whole_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path, content: bytes) -> None:
        if path.name == "manifest.yaml":  # the last one
            raise OSError(28, "No space left on device")
        path.write_bytes(content)

    monkeypatch.setattr("ccm_agent.clikit.site_writer.write_private", fail)
    said = imported(Desk(a_node("web1", a_host())), tmp_path / "site")

    assert (said.code, list(tmp_path.iterdir())) == (1, [])
    assert "site: No space left on device" in said.err


def test_nodes_without_resources_are_named(tmp_path: Path) -> None:
    said = imported(Desk(a_node("web1", a_host()), a_node("web2")), tmp_path / "site")

    assert said.code == 0, said.err
    assert "no resources: web2\n" in said.out


@pytest.mark.parametrize(
    ("types", "sentence"),
    [
        ("file", "name an absolute path, such as file:/etc/nginx"),
        ("user,directory:srv", "name an absolute path, such as directory:/etc/nginx"),
        ("file:/etc/../root", "name an absolute path"),
        ("file:/", "name an absolute path"),
        ("file:/etc/a\nb", "name an absolute path"),
        ("config", "name an absolute path"),
        ("container:web", "`container` has no path; write `container`"),
        ("user:/etc", "`user` has no path; write `user`"),
        ("systemd_unit:x", "`systemd_unit` has no path"),
        ("usr", "did you mean `user`?"),
        ("exec", "not a type to import"),
    ],
)
def test_type_that_is_not_imported_is_refused_at_once(tmp_path: Path, types: str, sentence: str) -> None:
    said = Desk().ccmctl("import", "--all", "--types", types, "--out", str(tmp_path / "site"))

    assert said.code == 1
    assert sentence in " ".join(said.err.split())


def test_types_are_completed_after_a_comma() -> None:
    from ccm_ctl.commands.completion_values import complete

    found = complete(None, "TYPES", "user,s")  # type: ignore[arg-type]

    assert [item.value for item in found] == [
        "user,service",
        "user,sysctl",
        "user,system",
        "user,systemd_unit",
    ]
    assert [item.value for item in complete(None, "TYPES", "f")] == ["file"]  # type: ignore[arg-type]


PLAIN = {"ensure": "present", "owner": "root", "group": "root", "mode": "0644"}


def digest_of(content: bytes) -> str:
    return sha256(content).hexdigest()


def a_file(name: str, content: bytes, **more: Any) -> FoundResource:
    described = FoundContent(sha256=digest_of(content), size_bytes=len(content))
    return FoundResource(type="file", name=name, properties=PLAIN | more, contents=(described,))


def with_files(name: str, *files: tuple[str, bytes], sends: dict[str, bytes] | None = None) -> FakeNode:
    """A node that reports files, and sends their contents, or what a test says, by digest."""
    contents = {digest_of(content): content for _, content in files} if sends is None else sends
    resources = [a_file(path, content) for path, content in files]
    [part] = split_resources(HostResources(resources=resources, contents=contents))
    return FakeNode(name, {"role": "web", "name": name}, status=to_builtins(part))


def fetched(*nodes: FakeNode) -> dict[str, list[str]]:
    """The digests that each node was asked for."""
    asked = {one.name: [digest for said in one.heard for digest in said.get("contents", [])] for one in nodes}
    return {name: digests for name, digests in asked.items() if digests}


def with_contents(desk: Desk, out: Path) -> Said:
    return desk.ccmctl("import", "--all", "--types", "file:/etc/app", "--out", str(out), "--json")


def test_contents_are_fetched_once_and_written_beside_the_manifests_of_their_layers(tmp_path: Path) -> None:
    both, own = ("/etc/app/both.conf", b"both\xff\n"), ("/etc/app/own.conf", b"own\n")
    nodes = with_files("web1", both), with_files("web2", both, own)

    said = with_contents(Desk(*nodes), tmp_path / "site")

    assert said.code == 0, said.err
    layers = tmp_path / "site" / "layers"
    assert (layers / "common/files/etc/app/both.conf").read_bytes() == both[1]
    assert (layers / "web2/files/etc/app/own.conf").read_bytes() == own[1]
    written = decode_yaml((layers / "web2/file.yaml").read_text())
    source = {"source": "files/etc/app/own.conf"}
    assert written == {"ccm": {"resources": [{"file": [{own[0]: PLAIN | source}]}]}}
    assert fetched(*nodes) == {"web1": [digest_of(both[1])], "web2": [digest_of(own[1])]}


def test_content_with_another_digest_is_refused_and_comes_from_the_next_node(tmp_path: Path) -> None:
    both, mine = ("/etc/app/both.conf", b"both\n"), ("/etc/app/mine.conf", b"mine\n")
    planted = {digest_of(both[1]): b"evil\n", digest_of(mine[1]): b"evil too\n"}
    nodes = with_files("evil", both, mine, sends=planted), with_files("web2", both)

    said = with_contents(Desk(*nodes), tmp_path / "site")

    [record] = said.named("import")
    assert (tmp_path / "site/layers/common/files/etc/app/both.conf").read_bytes() == both[1], said.err
    reason = "its content does not match the reported digest"
    assert record["left_out"] == {"evil": [{"type": "file", "name": mine[0], "reason": reason}]}
    assert "evil" not in "".join(
        path.read_text()
        for path in (tmp_path / "site").rglob("*")
        if path.is_file() and path.suffix != ".yaml"
    )


def test_content_that_no_node_sends_is_left_out(tmp_path: Path) -> None:
    nodes = with_files("web1", ("/etc/app/a", b"a"), ("/etc/app/b", b"b"), sends={digest_of(b"a"): b"a"})

    said = with_contents(Desk(nodes), tmp_path / "site")

    [record] = said.named("import")
    assert [one["reason"] for one in record["left_out"]["web1"]] == [
        "its content was not sent: it has changed"
    ]
    assert (tmp_path / "site/layers/common/files/etc/app/a").read_bytes() == b"a"


def test_contents_that_are_too_large_for_a_site_are_refused_before_they_are_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ccm_ctl.fleet.imports.contents.SITE_BYTES", 9)
    small, large = with_files("web1", ("/etc/app/a", b"a" * 9)), with_files("web1", ("/etc/app/a", b"a" * 10))

    fits = with_contents(Desk(small), tmp_path / "small")
    refused = with_contents(Desk(large), tmp_path / "large")

    assert (fits.code, refused.code) == (0, 1)
    assert "too many for a site" in refused.err
    assert fetched(large) == {}
    assert not (tmp_path / "large").exists()


def test_contents_of_one_node_come_in_several_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ccm_ctl.fleet.imports.contents.BATCH_FILES", 2)
    node = with_files("web1", *[(f"/etc/app/{name}", name.encode()) for name in "abc"])

    said = with_contents(Desk(node), tmp_path / "site")

    assert said.code == 0, said.err
    assert [len(one["contents"]) for one in node.heard if one.get("contents")] == [2, 1]
    written = {one.name for one in (tmp_path / "site/layers/common/files/etc/app").iterdir()}
    assert written == {"a", "b", "c"}
