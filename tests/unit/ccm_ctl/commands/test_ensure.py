"""`ccmctl ensure`: properties as they are written, and the request they become."""

from __future__ import annotations

import pytest

from ccm_agent.resources.catalog import Catalog
from tests.support.controller import Desk, FakeNode, event

OWNED = "owner=root group=root"
ROOTS = {"owner": "root", "group": "root"}


@pytest.mark.parametrize(
    ("words", "properties"),
    [
        (
            f"file present content=hello mode=644 {OWNED}",
            {"ensure": "present", "content": "hello", "mode": "644", **ROOTS},
        ),
        (
            f"file present --content hello --mode=0644 {OWNED}",
            {"ensure": "present", "content": "hello", "mode": "0644", **ROOTS},
        ),
        ("file absent --force", {"ensure": "absent", "force": True}),
        (
            f"file present replace=false content=true mode=600 {OWNED}",
            {"ensure": "present", "replace": False, "content": "true", "mode": "600", **ROOTS},
        ),
        ("file absent owner={{Facts.x}}", {"ensure": "absent", "owner": "{{Facts.x}}"}),
        ("file absent require=a#b --prop require=c#d", {"ensure": "absent", "require": ["a#b", "c#d"]}),
        ("file absent --require a#b --require c#d", {"ensure": "absent", "require": ["a#b", "c#d"]}),
        ("file --prop ensure=absent", {"ensure": "absent"}),
        ("file absent content=a=b owner=", {"ensure": "absent", "content": "a=b", "owner": ""}),
        ("exec returns:=[0,100] timeout=5s", {"returns": [0, 100], "timeout": "5s"}),
        ("exec --returns 0 --returns 100 refresh-only=true", {"returns": [0, 100], "refresh_only": True}),
        ("exec --unless Facts.x unless=true", {"control": {"unless": "Facts.x"}, "unless": "true"}),
        (
            f"archive present url=http://x/motd.tgz --headers A:b --headers C:d {OWNED}",
            {"ensure": "present", "url": "http://x/motd.tgz", "headers": {"A": "b", "C": "d"}, **ROOTS},
        ),
        (
            "service running --check true",
            {"ensure": "running", "health_checks": [{"command": "true", "tries": 5, "try_sleep": "1s"}]},
        ),
        ('scaffold present source=x data:={"a":1}', {"ensure": "present", "source": "x", "data": {"a": 1}}),
    ],
)
def test_properties_are_sent_as_the_type_has_them(words: str, properties: dict[str, object]) -> None:
    kind, *rest = words.split()
    name = {"archive": "/srv/motd.tgz", "service": "motd"}.get(kind, "/etc/motd")
    desk = Desk(FakeNode("web1", {}, [event("/etc/motd", 2)]))

    said = desk.ccmctl("ensure", kind, name, *rest, "--all", "--yes")

    assert said.code == 0, said.err
    assert desk.nodes[0].heard[0]["properties"] == {"name": name} | properties


def test_the_output_of_a_command_is_shown_with_equal_nodes_folded() -> None:
    ran = event("uptime", 2, type="exec", output="up 3 days\n")
    desk = Desk(FakeNode("web1", {}, [ran]), FakeNode("web2", {}, [ran]))

    said = desk.ccmctl("ensure", "exec", "uptime", "--all", "--yes")

    assert "\nweb[1-2]: exec#uptime\n  │ up 3 days\n\nensure exec#uptime: 2 nodes" in said.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("file x present absent", "absent: not a property; write it as KEY=VALUE"),
        ("file x =x", "a property needs a name: write it as KEY=VALUE"),
        ("file x --prop x", "--prop x: write it as KEY=VALUE"),
        ("file x mode:=[", "mode: the value after := is not JSON: Input data was truncated"),
        ("file x contnet=a", "contnet: file has no such property, did you mean `content`?"),
        ("exec x --zzzzzz", "--zzzzzz: no such flag; `ccmctl ensure exec --help` lists them"),
        ("file x mode=1 mode=2", "mode: given twice; it takes one value"),
        ("file x --mode 1 --mode 2", "mode: given twice; it takes one value"),
        ("file x force=maybe", "force: 'maybe' is neither true nor false"),
        ("exec x --returns a", "returns: 'a' is not a number"),
        ("archive x --headers a", "headers: not a pair; write it as KEY=VALUE"),
        ("scaffold x data=a", "data: not a text value; write it as data:=JSON"),
        ("file x --contnet a", "--contnet: no such flag, did you mean `--content`?"),
        ("package x --force", "--force: no such flag, did you mean `--unchecked`?"),
        (
            "zzzzzz x",
            f"unknown resource type `zzzzzz`; known types: {', '.join(Catalog().names())}, "
            "and --unchecked sends a type that only newer agents have",
        ),
        ("fiel x", "unknown resource type `fiel`, did you mean `file`?"),
        ("../file x", "unknown resource type `../file`, did you mean `file`?"),
    ],
)
def test_an_unknown_property_is_reported_before_connecting(words: str, said: str) -> None:
    desk = Desk(FakeNode("web1", {}, [event("x", 2)]))

    answer = desk.ccmctl("ensure", *words.split(), "--all", "--yes")

    assert (answer.code, answer.err.splitlines(), desk.nodes[0].heard) == (1, [f"ccmctl: {said}"], [])


def test_a_property_that_is_like_no_other_is_reported_which_there_are() -> None:
    said = Desk(FakeNode("web1")).ccmctl("ensure", "package", "x", "name=y", "--all", "--yes")

    assert (said.code, said.err) == (
        1,
        "ccmctl: name: package has no such property; it has alias, ensure, provider, health_checks, require, control, ignore, "
        "timeout, retry, tags, sensitive, register_when_stable\n",
    )


def test_the_help_of_a_type_lists_its_flags_with_their_descriptions() -> None:
    said = Desk(FakeNode("web1")).ccmctl("ensure", "file", "--help")

    shown = " ".join(said.screen.split())
    assert said.code == 0
    assert "--content TEXT" in shown
    assert (
        "--force / --no-force With `ensure: absent`: remove a directory together with its contents." in shown
    )
    assert "--unless EXPR" in shown


def test_the_help_of_a_type_groups_its_options_and_lists_the_values_of_ensure() -> None:
    shown = Desk(FakeNode("web1")).ccmctl("ensure", "service", "--help").screen

    titles = [line for line in shown.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert titles == [
        "Arguments:",
        "Properties of a service:",
        "Properties of every resource:",
        "Targets:",
        "Options:",
        "Examples:",
    ]
    assert "ENSURE: `running` (default) or `stopped`." in " ".join(shown.split())


def test_one_resource_becomes_a_run() -> None:
    desk = Desk(FakeNode("web1", {"role": "web"}, [event("/etc/motd", 2)]))

    said = desk.ccmctl(
        "ensure", "file", "/etc/motd", "present", "--content", "a b", "--mode", "0644", "--owner", "root", "--group", "www",
        "-t", "role=web", "--yes",
    )  # fmt: skip

    request = desk.nodes[0].heard[0]
    assert (request["protocol"], request["type"], request["properties"]) == (
        "io.choria.ccm.v1.resource.ensure.request",
        "file",
        {
            "ensure": "present",
            "content": "a b",
            "mode": "0644",
            "owner": "root",
            "group": "www",
            "name": "/etc/motd",
        },
    )
    assert (said.code, said.screen) == (
        0,
        "run RUN: ensure file#/etc/motd on 1 node\n"
        "NODES  STATE    WHAT            TIME\n"
        "web1   changed  file#/etc/motd  12ms\n"
        "\n"
        "ensure file#/etc/motd: 1 node: 1 changed in T (run RUN)\n",
    )


def test_a_script_must_say_yes() -> None:
    said = Desk(FakeNode("web1")).ccmctl("ensure", "package", "nginx", "latest", "--all")

    assert (said.code, said.err.splitlines()[-1]) == (
        1,
        'ccmctl: cannot ask "ensure package#nginx on 1 node?" without a terminal; use --yes',
    )


@pytest.mark.parametrize(
    ("words", "properties"),
    [
        pytest.param(
            ["mount", "/srv", "mounted", "device=/dev/sdb1", "pass:=2", "-p", "atboot=true"],
            {"name": "/srv", "ensure": "mounted", "device": "/dev/sdb1", "pass": 2, "atboot": "true"},
            id="a type that is not known here",
        ),
        pytest.param(
            ["package", "nginx", "held", "origin=backports"],
            {"name": "nginx", "ensure": "held", "origin": "backports"},
            id="a property that is not known here",
        ),
        pytest.param(
            ["file", "/x", "presnt", "--force"],
            {"name": "/x", "ensure": "presnt", "force": True},
            id="a property that is itself called force",
        ),
    ],
)
def test_what_only_newer_agents_have_is_sent_unchecked(
    words: list[str], properties: dict[str, object]
) -> None:
    desk = Desk(FakeNode("web1", {}, [event("/srv", 2)]))

    refused = desk.ccmctl("ensure", *words, "--all", "--yes")
    heard_before = list(desk.nodes[0].heard)
    sent = desk.ccmctl("ensure", *words, "--all", "--yes", "--unchecked")

    assert (refused.code, heard_before) == (1, [])
    assert sent.code == 0, sent.err
    assert (desk.nodes[0].heard[0]["type"], desk.nodes[0].heard[0]["properties"]) == (words[0], properties)
