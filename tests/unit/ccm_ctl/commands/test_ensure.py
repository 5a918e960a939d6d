"""`ccmctl ensure`: properties as they are written, and the request they become."""

from __future__ import annotations

import pytest

from ccm_agent.model.errors import UsageError
from ccm_ctl.commands.ensure import read_properties
from tests.support.controller import Desk, FakeNode, event


@pytest.mark.parametrize(
    ("words", "props", "properties"),
    [
        ("present content=hello", "", {"ensure": "present", "content": "hello"}),
        ("--content hello --mode=0644", "", {"content": "hello", "mode": "0644"}),
        ("--health-checks x", "", {"health_checks": "x"}),
        ("--force --mode 0644", "", {"force": True, "mode": "0644"}),
        ("force=true purge=false", "", {"force": True, "purge": False}),
        ("require=a require=b", "require=c", {"require": ["a", "b", "c"]}),
        ("returns:=[0,100] timeout=5", "", {"returns": [0, 100], "timeout": "5"}),
        ("content=a=b content2=", "", {"content": "a=b", "content2": ""}),
        ("", "ensure=absent", {"ensure": "absent"}),
    ],
)
def test_properties_are_read_as_they_are_written(
    words: str, props: str, properties: dict[str, object]
) -> None:
    assert read_properties(words.split(), props.split()) == properties


@pytest.mark.parametrize(
    ("words", "props", "said"),
    [
        ("present absent", "", "absent: not a property; write it as KEY=VALUE"),
        ("=x", "", "a property needs a name: write it as KEY=VALUE"),
        ("", "x", "--prop x: write it as KEY=VALUE"),
        ("x:=[", "", "x:=[: what follows := is not JSON: Input data was truncated"),
    ],
)
def test_what_is_no_property_says_so(words: str, props: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_properties(words.split(), props.split())

    assert str(caught.value) == said


def test_one_resource_becomes_a_run() -> None:
    desk = Desk(FakeNode("web1", {"role": "web"}, [event("/etc/motd", 2)]))

    said = desk.ccmctl(
        "ensure", "file", "/etc/motd", "present", "--content", "a b", "--mode", "0644", "-t", "role=web", "--yes"
    )  # fmt: skip

    request = desk.nodes[0].heard[0]
    assert (request["protocol"], request["type"], request["properties"]) == (
        "io.choria.ccm.v1.resource.ensure.request",
        "file",
        {"ensure": "present", "content": "a b", "mode": "0644", "name": "/etc/motd"},
    )
    assert (said.code, said.screen) == (
        0,
        "run RUN: ensure file#/etc/motd on 1 node\n"
        "NODES  STATE    WHAT             TIME\n"
        "web1   changed  file#/etc/motd  12 ms\n"
        "\n"
        "ensure file#/etc/motd: 1 node: 1 changed in T (run RUN)\n",
    )


def test_a_script_must_say_yes() -> None:
    said = Desk(FakeNode("web1")).ccmctl("ensure", "package", "nginx", "--all")

    assert (said.code, said.err.splitlines()[-1]) == (
        1,
        'ccmctl: nobody is there to answer "ensure package#nginx on 1 node?"; say --yes',
    )
