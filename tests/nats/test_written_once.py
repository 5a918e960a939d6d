"""An operator who may only plan cannot make the deployments of other operators fail, now or later (ADR 114)."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.layout import MANIFESTS
from ccm_agent.bus.objects import NatsObjects
from ccm_agent.bus.streams import call, store
from ccm_ctl.fleet.content import read_content
from tests.support.fleet import a_file, manifest
from tests.support.nats_server import settings
from tests.support.secured import Secured, secured_fleet

pytestmark = [pytest.mark.nats, pytest.mark.timeout(180)]


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Secured]:
    with secured_fleet(tmp_path) as one:
        one.give("operator", "eve", "--plan", "role=web")
        yield one


def connect(secured: Secured, name: str) -> Connection:
    creds = secured.keys / "tester.creds" if name == "tester" else secured.directory / f"{name}.creds"
    return Connection(settings(secured.fleet.broker, name, creds=str(creds)))


async def overwrite(secured: Secured, digest: str, size: int) -> None:
    """Eve stores a description of other content, and one of nothing, under the digest."""
    subject = f"$O.{MANIFESTS}.M.{base64.urlsafe_b64encode(digest.encode()).decode()}"
    says = f"SHA-256={base64.urlsafe_b64encode(bytes.fromhex(digest)).decode()}"
    meta = {"name": digest, "bucket": MANIFESTS, "nuid": "evil", "size": size, "digest": says}
    async with connect(secured, "eve") as eve:
        await eve.connect_now()
        await store(eve, f"$O.{MANIFESTS}.C.evil", b"y" * size)
        await store(eve, subject, msgspec.json.encode(meta))
        await store(eve, subject, b"")


async def purge(secured: Secured) -> None:
    """The operator with --admin removes all bundles."""
    async with connect(secured, "tester") as tester:
        await tester.connect_now()
        await call(tester, f"STREAM.PURGE.OBJ_{MANIFESTS}")


async def read_newest(secured: Secured, digest: str) -> bytes:
    async with connect(secured, "tester") as tester:
        await tester.connect_now()
        return await NatsObjects(tester, MANIFESTS)._read_newest(digest, 1 << 26)


def bundle(secured: Secured, name: str) -> tuple[Path, str, int]:
    """A directory with a manifest that stores a file of this name; its digest and size."""
    directory = secured.directory / name
    directory.mkdir()
    (directory / "manifest.yaml").write_text(manifest(a_file(name)))
    content = read_content(directory)
    return directory, content.digest, len(content.packed)


def test_a_node_that_comes_later_gets_the_bundle_that_a_planner_overwrote(secured: Secured) -> None:
    directory, digest, size = bundle(secured, "site")
    fleet = secured.fleet
    assert secured.as_("bob", "assign", "site", str(directory), "--targets", "role=web", "--yes").code == 0
    fleet.wait_for(lambda: (fleet.agents["web1"].files / "site").exists(), "web1 to converge")

    asyncio.run(overwrite(secured, digest, size))
    creds = secured.give("node", "web2")
    fleet.add("web2", nats={"url": fleet.environ["NATS_URL"], "creds": str(creds)})
    assert secured.as_("bob", "facts", "set", "web2", "role=web").code == 0

    fleet.wait_for(lambda: (fleet.agents["web2"].files / "site").exists(), "web2 to converge")


def test_a_planner_who_takes_a_digest_first_does_not_keep_others_from_using_it(secured: Secured) -> None:
    directory, digest, size = bundle(secured, "site")
    asyncio.run(overwrite(secured, digest, size))

    done = secured.as_("bob", "apply", str(directory), "--targets", "role=web", "--yes", "--json")

    assert (done.code, done.states) == (0, {"web1": "changed"})
    assert len(asyncio.run(read_newest(secured, digest))) == size, "agents of before read the newest"
    # the same steps with the right to remove do remove
    asyncio.run(purge(secured))
    assert secured.as_("bob", "bundle", "get", digest, "--out", str(secured.directory / "out")).code != 0
    again = secured.as_("tester", "apply", str(directory), "--targets", "role=web", "--yes", "--json")
    assert (again.code, again.states) == (0, {"web1": "stable"})
    assert secured.as_("bob", "bundle", "get", digest, "--out", str(secured.directory / "out")).code == 0
