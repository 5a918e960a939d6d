"""The host type: its checks, its decision table, its undo, and its provider on files that are faked."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ccm_agent.model.errors import LockError, PropertyError
from ccm_agent.model.records.undo import EarlierFile
from ccm_agent.resources.contract import Decision, DecisionContext
from ccm_agent.resources.host import TYPE
from ccm_agent.resources.host.lines import read_entries, with_entries, without_entries
from ccm_agent.resources.host.model import HostEntry, HostProperties
from ccm_agent.resources.host.providers.hosts_file import HostsFile
from ccm_agent.resources.host.resource import HOSTS, check, decide, reach
from ccm_agent.resources.host.undo import earlier, identify
from ccm_agent.testing.files import FakeFiles
from ccm_agent.testing.locks import FakeLocks
from tests.support.resources import manage

USUAL = """\
127.0.0.1\tlocalhost
::1\tlocalhost ip6-localhost # both families

# ours
192.0.2.7   DB.example.net db   # primary
"""


def wanted(name: str = "db.example.net", **properties: Any) -> HostProperties:
    usual = {"ensure": "present", "address": "192.0.2.7"}
    return HostProperties(name=name, **{**usual, **properties})


class Host:
    """A host whose /etc/hosts is in memory."""

    def __init__(self, content: str | bytes | None = USUAL) -> None:
        self.files, self.locks = FakeFiles(), FakeLocks()
        self.files.put_directory("/etc")
        if content is not None:
            self.files.put(HOSTS, content, mode=0o640)
        self.provider = HostsFile(self.files, self.locks)

    @property
    def hosts(self) -> str:
        return self.files.nodes[HOSTS].content.decode()


@pytest.mark.parametrize(
    ("properties", "place"),
    [
        pytest.param({"name": ""}, "name", id="no name"),
        pytest.param({"name": "db\n10.0.0.1 bank.example.net"}, "name", id="a newline in the name"),
        pytest.param({"name": "db\0"}, "name", id="a NUL"),
        pytest.param({"name": "db web"}, "name", id="a space"),
        pytest.param({"name": "db\tweb"}, "name", id="a tab"),
        pytest.param({"name": "db#web"}, "name", id="a comment"),
        pytest.param({"name": "db\u00a0web"}, "name", id="a no-break space"),
        pytest.param({"name": "-db"}, "name", id="a hyphen at the beginning"),
        pytest.param({"name": "db-.net"}, "name", id="a hyphen at the end of a part"),
        pytest.param({"name": "db..net"}, "name", id="an empty part"),
        pytest.param({"name": "db.net."}, "name", id="a dot at the end"),
        pytest.param({"name": "../etc/passwd"}, "name", id="a path"),
        pytest.param({"name": "192.0.2.7"}, "name", id="an address as name"),
        pytest.param({"name": "m\u00fcnchen.de"}, "name", id="a letter that is not ASCII"),
        pytest.param({"name": "\u0661db.net"}, "name", id="a digit that is not ASCII"),
        pytest.param({"name": "a" * 64}, "name", id="an overlong part"),
        pytest.param({"name": "a." * 200 + "net"}, "name", id="an overlong name"),
        pytest.param({"name": "localhost", "ensure": "absent"}, "ensure", id="localhost absent"),
        pytest.param({"name": "LocalHost"}, "address", id="localhost on another host"),
        pytest.param({"aliases": ["localhost"]}, "address", id="localhost as alias of another host"),
        pytest.param({"address": ""}, "address", id="no address"),
        pytest.param({"address": []}, "address", id="no addresses"),
        pytest.param({"address": ["192.0.2.7", ""]}, "address", id="an empty address"),
        pytest.param({"address": "192.0.2"}, "address", id="half an address"),
        pytest.param({"address": "0300.1.1.1"}, "address", id="an octal address"),
        pytest.param({"address": "192.0.2.7 bank.example.net"}, "address", id="a name behind the address"),
        pytest.param({"address": "192.0.2.7\n"}, "address", id="a newline in the address"),
        pytest.param({"address": "192.0.2.7\0"}, "address", id="a NUL in the address"),
        pytest.param({"address": "fe80::1%eth0"}, "address", id="an interface"),
        pytest.param({"address": "9" * 100_000}, "address", id="a huge address"),
        pytest.param({"address": ["2001:db8::1", "2001:DB8:0::1"]}, "address", id="an address twice"),
        pytest.param({"address": [f"10.0.0.{one}" for one in range(101)]}, "address", id="many addresses"),
        pytest.param({"aliases": ["db", "db\n10.0.0.1 bank"]}, "aliases[1]", id="a newline in an alias"),
        pytest.param({"aliases": ["web#"]}, "aliases[0]", id="a comment in an alias"),
        pytest.param({"aliases": ["db", "DB"]}, "aliases[1]", id="an alias twice"),
        pytest.param({"aliases": ["DB.example.net"]}, "aliases[0]", id="the name as alias"),
        pytest.param({"aliases": [f"a{one}" for one in range(101)]}, "aliases", id="many aliases"),
    ],
)
def test_hostile_properties_are_refused(properties: dict[str, Any], place: str) -> None:
    with pytest.raises(PropertyError) as caught:
        check(wanted(**properties))

    assert caught.value.place is not None
    assert caught.value.place.path == f"$.{place}"
    assert len(str(caught.value)) < 1000


def test_all_errors_are_reported_at_once() -> None:
    with pytest.raises(PropertyError) as caught:
        check(wanted("-db", address="here", aliases=["a b"]))

    assert [one.place.path for one in caught.value.others if one.place] == ["$.address", "$.aliases[0]"]


@pytest.mark.parametrize(
    "properties",
    [
        pytest.param({"name": "db"}, id="a short name"),
        pytest.param({"name": "_dmarc.3com.example-1.net"}, id="underscores, digits and hyphens"),
        pytest.param({"address": "0.0.0.0"}, id="an address to block a name"),
        pytest.param({"address": ["192.0.2.7", "::ffff:192.0.2.7"]}, id="both families"),
        pytest.param(
            {"name": "localhost", "address": ["127.0.0.1", "0:0:0:0:0:0:0:1"]}, id="the usual localhost"
        ),
        pytest.param({"ensure": "absent", "address": ""}, id="absent, with a name only"),
        pytest.param({"ensure": "absent", "address": []}, id="absent, with no addresses"),
    ],
)
def test_usual_properties_are_accepted(properties: dict[str, Any]) -> None:
    check(wanted(**properties))


def test_lines_are_read_as_the_resolver_reads_them() -> None:
    lines = [
        *USUAL.split("\n"),
        "  2001:DB8:0:0::7\tdb.example.net#text",
        "192.0.2.9",
        "#192.0.2.9 commented",
        "garbage db.example.net",
        "fe80::1%lo0 localhost",
        "10.0.0.1\r\f win\r",
    ]

    assert read_entries(lines) == {
        "localhost": (
            HostEntry(address="127.0.0.1"),
            HostEntry(address="::1", aliases=("ip6-localhost",)),
        ),
        "db.example.net": (
            HostEntry(address="192.0.2.7", aliases=("db",)),
            HostEntry(address="2001:db8::7"),
        ),
        "win": (HostEntry(address="10.0.0.1"),),
    }


@pytest.mark.parametrize(
    ("before", "addresses", "aliases", "after"),
    [
        pytest.param([], ["10.0.0.1"], None, ["10.0.0.1 db"], id="an empty file"),
        pytest.param(
            ["# a", "10.9.9.9 x db"],
            ["10.0.0.1", "::2"],
            ["d"],
            ["# a", "10.9.9.9 x db", "10.0.0.1 db d", "::2 db d"],
            id="new lines at the end, and the alias of another host stays",
        ),
        pytest.param(
            ["10.0.0.1\tDB d # note", "10.0.0.2 x"],
            ["10.0.0.3"],
            None,
            ["10.0.0.3\tDB d # note", "10.0.0.2 x"],
            id="another address in its place",
        ),
        pytest.param(
            ["10.0.0.1 db", "10.0.0.2 x", "10.0.0.9 db old"],
            ["10.0.0.9"],
            [],
            ["10.0.0.2 x", "10.0.0.9 db"],
            id="the line with the address stays",
        ),
        pytest.param(
            ["10.0.0.1   db", "10.0.0.2 x"],
            ["::1", "10.0.0.1"],
            None,
            ["10.0.0.1   db", "::1 db", "10.0.0.2 x"],
            id="a further address behind the line of the host",
        ),
        pytest.param(
            ["10.0.0.1 db a", "10.0.0.1 db b"],
            ["10.0.0.1"],
            None,
            ["10.0.0.1 db a", "10.0.0.1 db b"],
            id="aliases in two lines that are not managed",
        ),
        pytest.param(
            ["10.0.0.1 db a", "10.0.0.1 db b"],
            ["10.0.0.1"],
            ["a", "b"],
            ["10.0.0.1 db a b"],
            id="aliases in two lines that are managed",
        ),
    ],
)
def test_only_lines_of_the_host_change(
    before: list[str], addresses: list[str], aliases: list[str] | None, after: list[str]
) -> None:
    changed = with_entries(before, "db", addresses, aliases)

    assert changed == after
    assert with_entries(changed, "db", addresses, aliases) == changed


def test_absent_removes_all_lines_of_the_host_and_no_other() -> None:
    lines = ["10.0.0.1 db", "10.0.0.2 x db", "# db", "::2 Db d", "db"]

    assert without_entries(lines, "db") == ["10.0.0.2 x db", "# db", "db"]


ADD, CHANGE = "Would have added the host to /etc/hosts", "Would have changed the host in /etc/hosts"
REMOVE = "Would have removed the host from /etc/hosts"
IPV6 = {"address": ["192.0.2.7", "2001:db8::7"]}


@pytest.mark.parametrize(
    ("properties", "noop", "changes"),
    [
        pytest.param({}, "", {}, id="stable, aliases not managed"),
        pytest.param({"aliases": ["DB"]}, "", {}, id="stable, in another case"),
        pytest.param({"aliases": []}, CHANGE, {"aliases": ("db", "")}, id="no aliases"),
        pytest.param(
            IPV6, CHANGE, {"address": ("192.0.2.7", "192.0.2.7, 2001:db8::7")}, id="a further address"
        ),
        pytest.param(
            {"name": "new", "address": "2001:DB8::1", "aliases": ["n"]},
            ADD,
            {"ensure": ("absent", "present"), "address": ("", "2001:db8::1"), "aliases": ("", "n")},
            id="a new host",
        ),
        pytest.param(
            {"ensure": "absent", "address": "10.0.0.1"},
            REMOVE,
            {"ensure": ("present", "absent"), "address": ("192.0.2.7", ""), "aliases": ("db", "")},
            id="absent, whatever its address",
        ),
        pytest.param({"name": "new", "ensure": "absent"}, "", {}, id="absent and stable"),
        pytest.param(
            {"name": "localhost", "address": ["::1", "127.0.0.1"]}, "", {}, id="addresses in another order"
        ),
    ],
)
async def test_steps_follow_from_the_desired_and_the_current_state(
    properties: dict[str, Any], noop: str, changes: dict[str, tuple[str, str]]
) -> None:
    host, entry = Host(), wanted(**properties)

    decision = decide(entry, await host.provider.status(entry), DecisionContext())
    event = await manage(TYPE, host.provider, entry)
    again = decide(entry, await host.provider.status(entry), DecisionContext())

    assert [step.noop for step in decision.steps] == ([noop] if noop else [])
    assert {one.property: (one.before, one.after) for one in decision.changes} == changes
    assert (event.error, event.changed, again) == ([], bool(noop), Decision())


async def test_the_rest_of_the_file_and_its_mode_are_kept() -> None:
    host = Host()

    await manage(TYPE, host.provider, wanted(address="192.0.2.8", aliases=["db", "sql"]))

    changed = USUAL.replace("192.0.2.7   DB.example.net db   #", "192.0.2.8   DB.example.net db sql #")
    assert host.hosts == changed
    assert host.files.nodes[HOSTS].mode == 0o640


async def test_a_missing_file_is_created_and_an_empty_one_is_kept() -> None:
    host = Host(None)

    await manage(TYPE, host.provider, wanted())
    written = host.hosts
    await manage(TYPE, host.provider, wanted(ensure="absent"))

    assert (written, host.hosts) == ("192.0.2.7 db.example.net\n", "")


@pytest.mark.parametrize("kind", ["symlink", "directory", "fifo", "huge"])
async def test_what_is_no_usual_file_is_an_error_and_stays(kind: str) -> None:
    host = Host(None)
    {
        "symlink": lambda: host.files.put_symlink(HOSTS, "/srv/hosts"),
        "directory": lambda: host.files.put_directory(HOSTS),
        "fifo": lambda: host.files.put_fifo(HOSTS),
        "huge": lambda: host.files.put(HOSTS, b"#" * (5 << 20)),
    }[kind]()
    before = host.files.nodes[HOSTS]

    event = await manage(TYPE, host.provider, wanted())

    assert event.failed
    assert HOSTS in event.error[0]
    assert host.files.nodes[HOSTS] is before


async def test_a_file_that_cannot_be_written_is_an_error() -> None:
    host = Host()
    host.files.refuses[HOSTS] = "Device or resource busy"

    event = await manage(TYPE, host.provider, wanted(address="::2"))

    assert event.error == ["/etc/hosts: Device or resource busy"]
    assert host.hosts == USUAL


async def test_a_lock_that_another_program_holds_is_an_error() -> None:
    host = Host()
    host.locks.foreign["hosts"] = "ccm apply (pid 7)"

    with pytest.raises(LockError, match="held by ccm apply"):
        await host.provider.write(wanted(address="::2"))

    assert host.hosts == USUAL


async def test_bytes_of_others_are_published_as_text_and_kept() -> None:
    host = Host(b"10.0.0.1 db \xff\n10.0.0.2 x \xfe # \xfd\n")
    entry = wanted("db", address="10.0.0.1", aliases=[])
    found = await host.provider.status(entry)

    kept = await earlier(entry, found, Decision(), keep_nothing)
    await manage(TYPE, host.provider, entry)

    assert b"\xef\xbf\xbd" in msgspec.json.encode(found)
    assert kept.why_not == "its earlier entry is not UTF-8"
    assert host.files.nodes[HOSTS].content == b"10.0.0.1 db\n10.0.0.2 x \xfe # \xfd\n"


async def test_a_thousand_hosts_are_one_look() -> None:
    host = Host()
    many = [wanted(f"n{number}") for number in range(1000)]

    found = await host.provider.look_ahead([*many, wanted()])

    assert [one.ensure for one in found] == ["absent"] * 1000 + ["present"]
    assert host.files.looked_at == [(HOSTS,)]


def test_the_policy_sees_the_file() -> None:
    assert reach(wanted()).paths == (HOSTS,)


async def keep_nothing(path: str, *, with_content: bool) -> EarlierFile:
    raise AssertionError("no file is kept")


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"name": "new"}, id="a new host"),
        pytest.param({"address": "10.0.0.1"}, id="another address"),
        pytest.param(IPV6, id="a further address"),
        pytest.param({"aliases": ["a", "b"]}, id="other aliases"),
        pytest.param({"ensure": "absent"}, id="removed"),
    ],
)
async def test_an_undo_restores_addresses_and_aliases(change: dict[str, Any]) -> None:
    host, entry = Host(), wanted(**change)
    found = await host.provider.status(entry)
    kept = await earlier(entry, found, Decision(), keep_nothing)

    await manage(TYPE, host.provider, entry)
    changed = identify(await host.provider.status(entry))
    back = HostProperties(name=entry.name, **kept.properties)
    check(back)
    await manage(TYPE, host.provider, back)

    assert changed != identify(found)
    assert identify(await host.provider.status(back)) == identify(found)


async def test_different_aliases_of_one_host_are_not_undone() -> None:
    entry = wanted("localhost", address="127.0.0.1")
    found = await Host().provider.status(entry)

    kept = await earlier(entry, found, Decision(), keep_nothing)

    assert kept.why_not == "its lines had different aliases"
