"""What operators remove at the center is removed at a site, also when the line was cut meanwhile. Mirrors do not copy purges."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import shutil
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest

from ccm_agent.bus import site_streams
from ccm_agent.bus.access.sites import MIRRORED
from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.kv import NatsKeyValue
from ccm_agent.bus.layout import DATA, FACTS, MANIFESTS, NODES, LayoutOptions
from ccm_agent.bus.objects import NatsObjects
from ccm_agent.bus.streams import call, read_all
from ccm_agent.bus.subjects import key_subject
from ccm_agent.model.errors import BusError, BusSetupError
from ccm_agent.model.wire import NodeRecord
from ccm_agent.testing.nats_server import NatsServer
from tests.support.fleet import a_file, manifest
from tests.support.nats_server import eventually, recreate
from tests.support.sites import Site, seed, site_fleet, write_credentials

pytestmark = [pytest.mark.nats, pytest.mark.timeout(600)]

JOINED_S = 200.0

Copies = dict[str, list[tuple[int, str, bytes]]]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with site_fleet(tmp_path) as one:
        yield one


def done(site: Site, *words: str, stdin: str = "") -> str:
    """Run `ccmctl` at the center. Returns its notes."""
    one = site.fleet.ctl(*words, stdin=stdin, environ={"NATS_URL": site.center.url})
    assert one.code == 0, one.out + one.err
    return one.err


@contextlib.asynccontextmanager
async def account(site: Site) -> AsyncIterator[Connection]:
    """A connection in the account of the site at the center."""
    owner = site.directory / "owner.creds"
    write_credentials(owner, seed(site.keys, "site-site1"), "owner", "STANDARD", {})
    async with site.user(site.center, "owner", owner) as one:
        yield one


async def messages(connection: Connection) -> Copies:
    """All messages of the mirrored streams."""
    found: Copies = {}
    for name in MIRRORED:
        found[name] = [(one.sequence, one.subject, one.body) async for one in read_all(connection, name, ">")]
    return found


async def have_met(site: Site) -> bool:
    """Wait until the site has the messages of the center. Returns whether it has no others."""
    async with site.admin(site.center) as center, site.admin(site.broker) as broker:
        wanted, deadline = await messages(center), time.monotonic() + JOINED_S
        while True:
            with contextlib.suppress(BusError):
                found = await messages(broker)
                if all(set(wanted[name]) <= set(found[name]) for name in MIRRORED):
                    return found == wanted
            assert time.monotonic() < deadline
            await asyncio.sleep(0.2)


def write_manifest(site: Site, name: str, content: str) -> str:
    site.fleet.write(f"{name}/manifest.yaml", manifest(a_file(name, content)))
    return str(site.directory / name)


@pytest.mark.parametrize("is_cut", [pytest.param(False, id="line open"), pytest.param(True, id="line cut")])
def test_what_is_removed_at_the_center_has_no_effect_at_a_site(site: Site, is_cut: bool) -> None:
    fleet = site.fleet
    fleet.add("web1", nats={"url": site.broker.url, "creds": str(site.give("node", "web1"))})
    files = fleet.agents["web1"].files
    fleet.wait_for(lambda: "web1" in site.at_center("node", "list").out, "the node at the center")
    done(site, "secret", "init")
    done(site, "facts", "set", "web1", "role=web", "tier=one")
    done(site, "data", "put", "word", fleet.write("word.yaml", "data: {word: one}\n"))
    done(site, "secret", "put", "pw", "--for", "node=web1", stdin="first-value")
    done(site, "secret", "put", "gone", "--for", "node=web1", stdin="other-value")
    to = ("--targets", "role=web", "--yes")
    pinned = ("--data", "kv://CCM_DATA/word")
    done(site, "assign", "word", write_manifest(site, "word", "{{ lookup('data.word') }}"), *to, *pinned)
    done(site, "assign", "pw", write_manifest(site, "pw", "{{ secret('pw') }}"), *to)
    tier = write_manifest(site, "tier", "x")
    done(site, "assign", "tier", tier, "--targets", "tier=one", "--yes")
    fleet.wait_for(lambda: {"word", "pw", "tier"} <= {one.name for one in files.iterdir()}, "the assignments")
    before = (files / "pw").read_text()

    if is_cut:
        site.line.cut()
    done(site, "unassign", "word", "--yes")
    done(site, "data", "rm", "word", "--force", "--yes")
    done(site, "facts", "unset", "web1", "tier")
    done(site, "secret", "put", "pw", "--for", "node=web1", stdin="second-value")
    done(site, "secret", "remove", "gone", "--yes")
    if is_cut:
        during = fleet.ctl("assignment", "list").out
        assert "word" in during, "the control"
        site.line.heal()
    is_same = asyncio.run(have_met(site))
    for one in files.iterdir():
        one.unlink()
    run = fleet.ctl("run-now", "-t", "node=web1", "--yes")
    fleet.wait_for(lambda: (files / "pw").exists(), "the assignment that is left")

    assert run.code == 0, run.err
    assert is_same
    assert (before, (files / "pw").read_text()) == ("first-value", "second-value")
    assert {one.name for one in files.iterdir()} == {"pw"}
    assert "word" not in fleet.ctl("assignment", "list").out
    assert "word" not in fleet.ctl("data", "list").out
    assert "tier" not in fleet.ctl("facts", "show", "web1", "--assigned").out
    assert [one["name"] for one in fleet.ctl("secret", "list", "--json").named("secret")] == ["pw"]


async def introduce(site: Site, server: NatsServer, node: str, creds: Path, *, own_data: bool = True) -> None:
    """Store the record of a node."""
    async with site.user(server, node, creds) as connection:
        record = msgspec.json.encode(NodeRecord(node=node, signatures=True, own_data=own_data))
        await eventually(lambda: NatsKeyValue(connection, NODES).put(f"node.{node}", record))


def test_old_copies_of_a_protected_document_are_removed_at_a_site_by_the_same_command(site: Site) -> None:
    creds = site.give("node", "web9")
    asyncio.run(introduce(site, site.center, "web9", creds, own_data=False))
    done(site, "data", "put", "node/web9", site.fleet.write("old.yaml", "data: {pw: S3CRET}\n"))
    asyncio.run(introduce(site, site.center, "web9", creds, own_data=True))
    asyncio.run(have_met(site))

    note = done(site, "data", "protect")
    is_same = asyncio.run(have_met(site))
    exposed = site.fleet.ctl("data", "protect", "--noop", "--json").named("document")
    made = site.init(site.center, "--json")
    at_site = site.fleet.ctl("data", "protect")
    left = asyncio.run(copies(site, f"KV_{DATA}"))

    assert "site1" in note
    assert "`ccmctl data protect` there" in note
    assert not is_same, "the control"
    assert [one["key"] for one in exposed] == ["node/web9"]
    assert [one["details"] for one in made.named("made") if one["name"] == DATA] == [
        ["removed what was purged at the center"]
    ]
    assert at_site.code == 0, at_site.err
    assert "S3CRET" not in str(left)
    assert left[0] == left[1] == left[2] != []
    assert "S3CRET" in site.fleet.ctl("data", "get", "node/web9").out


async def copies(site: Site, name: str) -> list[list[tuple[int, str, bytes]]]:
    """The messages of a stream at the center, in the account of the site, and at the site."""
    async with (
        site.admin(site.center) as center,
        account(site) as own,
        site.admin(site.broker) as broker,
        asyncio.timeout(JOINED_S),
    ):
        wanted = (await messages(center))[name]
        while True:
            with contextlib.suppress(BusError):
                found = [wanted, *[(await messages(one))[name] for one in (own, broker)]]
                if all(set(wanted) <= set(one) for one in found):
                    return found
            await asyncio.sleep(0.2)


async def test_what_operators_write_during_a_purge_stays(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = f"KV_{DATA}"
    async with site.admin(site.center) as center, account(site) as own:
        bucket = NatsKeyValue(center, DATA)
        for key in ("word", "word", "word", "gone"):
            await eventually(functools.partial(bucket.put, key, b"old"))
        before = await copies(site, stream)
        await call(center, f"STREAM.PURGE.{stream}", {"filter": key_subject(DATA, "word"), "keep": 1})
        await call(center, f"STREAM.PURGE.{stream}", {"filter": key_subject(DATA, "gone")})
        counts = site_streams._counts

        async def count_and_write(connection: Connection, name: str) -> dict[str, int]:
            found = await counts(connection, name)
            if connection is center and name == stream:
                for key in ("word", "gone"):
                    await bucket.put(key, b"new")
                await copies(site, stream)
            return found

        monkeypatch.setattr(site_streams, "_counts", count_and_write)
        made = await site_streams.make_mirrors(own, center, LayoutOptions(), "site1")
        after = [(await messages(one))[stream] for one in (center, own)]

    assert before[0] == before[1]
    assert [one.details for one in made if one.name == DATA] == [("removed what was purged at the center",)]
    assert after[0] == after[1]
    assert [body for _, _, body in after[0]] == [b"old", b"new", b"new"]


async def test_removed_bundles_leave_the_account_of_the_site_and_stay_at_the_site(site: Site) -> None:
    async with site.admin(site.center) as center, site.admin(site.broker) as broker:
        objects = NatsObjects(center, MANIFESTS)
        await objects.put("kept", b"kept" * 100_000)
        await objects.put("gone", b"gone" * 100_000)
        before = await copies(site, f"OBJ_{MANIFESTS}")
        [gone] = [one for one in await objects.all() if one.name == "gone"]

        assert await objects.remove(gone.name, gone.revision)
        made = await asyncio.to_thread(site.init, site.center)
        after = await copies(site, f"OBJ_{MANIFESTS}")
        at_site = NatsObjects(broker, MANIFESTS)
        for removal in (at_site.remove("kept", 1), at_site.trim()):
            with pytest.raises(BusSetupError, match="this broker is that of a site"):
                await removal
        kept = await at_site.get("kept", 1 << 20)
        purged = await call(broker, f"STREAM.PURGE.OBJ_{MANIFESTS}", {"filter": "$O.CCM_MANIFESTS.C.none"})

    assert made.code == 0, made.err
    assert before[0] == before[1] == before[2]
    assert after[0] == after[1] != before[0]
    assert after[2] == before[2], "as documented"
    assert kept == b"kept" * 100_000
    assert purged["success"], "the broker itself would purge a mirror"


def test_a_node_is_removed_at_the_center_and_then_at_its_site(site: Site) -> None:
    creds = site.give("node", "web9")
    asyncio.run(introduce(site, site.broker, "web9", creds))
    site.fleet.wait_for(lambda: "web9" in site.at_center("node", "list").out, "the node")

    note = done(site, "node", "rm", "web9", "--yes")
    before = site.fleet.ctl("node", "list").out
    removed = site.fleet.ctl("node", "rm", "web9", "--yes")
    site.fleet.wait_for(lambda: "web9" not in site.at_center("node", "list").out, "the marker of the site")

    assert "`ccmctl node rm web9` there, too" in note
    assert "web9" in before, "the control"
    assert (removed.code, "there, too" in removed.err) == (0, False), removed.err
    assert "web9" not in site.fleet.ctl("node", "list").out


def test_a_presence_that_expires_at_a_site_expires_at_the_center(site: Site) -> None:
    creds = site.give("node", "web1")

    asyncio.run(put_presence(site, creds, 600))
    site.fleet.wait_for(lambda: asyncio.run(is_present(site)), "the presence")
    asyncio.run(put_presence(site, creds, 2))

    site.fleet.wait_for(lambda: not asyncio.run(is_present(site)), "its end")


async def put_presence(site: Site, creds: Path, ttl_s: int) -> None:
    async with site.user(site.broker, "web1", creds) as connection:
        await eventually(lambda: NatsKeyValue(connection, NODES).put("presence.web1", b"{}", ttl_s=ttl_s))


async def is_present(site: Site) -> bool:
    async with site.admin(site.center) as connection:
        return await NatsKeyValue(connection, NODES).get("presence.web1") is not None


def test_the_mirrors_of_a_bucket_that_was_lost_at_the_center_are_created_again(site: Site) -> None:
    for number in range(5):
        done(site, "facts", "set", "web1", f"rack={number}", "--new")
    asyncio.run(have_met(site))

    asyncio.run(lose(site, f"KV_{FACTS}"))
    done(site, "facts", "set", "web2", "rack=7", "--new")
    made = site.init(site.center, "--json")
    own = asyncio.run(subjects(site, f"KV_{FACTS}"))
    before = site.fleet.ctl("facts", "show", "web2", "--assigned").out
    site.broker.stop()
    [folder] = site.broker.settings.directory.glob(f"**/streams/KV_{FACTS}")
    shutil.rmtree(folder)
    site.broker.start()
    at_site = site.init(site.broker, "--json")
    is_same = asyncio.run(have_met(site))

    assert [one["name"] for one in made.named("made") if "created again" in str(one)] == [FACTS]
    assert own == ["$KV.CCM_FACTS.web2"]
    assert "rack" not in before, "the control"
    assert [one["name"] for one in at_site.named("made") if one["action"] == "created"] == [FACTS]
    assert is_same


async def lose(site: Site, name: str) -> None:
    """Delete a stream at the center, and create it without messages."""
    async with site.user(site.center, "all", site.everything("all")) as connection:
        await recreate(connection, name)


async def subjects(site: Site, name: str) -> list[str]:
    """The subjects of a stream in the account of the site, as soon as it has messages."""
    async with account(site) as own, asyncio.timeout(JOINED_S):
        while True:
            if found := [one[1] for one in (await messages(own))[name]]:
                return found
            await asyncio.sleep(0.2)
