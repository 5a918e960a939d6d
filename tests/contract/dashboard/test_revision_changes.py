"""The lines that a revision of an assignment changed, over HTTP: masked as in `ccmctl assign`, and of verified revisions only."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import tarfile
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from ccm_agent.bus.subjects import assignment_key
from ccm_agent.model.bundle import Bundle
from ccm_agent.model.records.stamped import Stamped
from ccm_agent.model.wire import Assignment
from ccm_agent.testing.memory_bus import MemoryBus
from ccm_ctl.fleet.assignments.revision_changes import DIFF_LINES
from ccm_ctl.fleet.data.documents import Documents
from ccm_ctl.fleet.ports import Fleet
from tests.contract.dashboard.test_server import Site, served
from tests.contract.dashboard.test_unverified_marks import NOW_MS, Scene
from tests.support.bundles import digest_of
from tests.support.controller import fleet_on
from tests.support.signing import OWN

NAME, KEY = "web", assignment_key("fact.role.web", "web")
PATH = f"/api/assignments/{NAME}?scope=fact.role.web"
MANIFEST = "manifest.yaml"


async def store(fleet: Fleet, files: Mapping[str, str]) -> Assignment:
    """Store a bundle; the assignment of it."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for path, text in files.items():
            member = tarfile.TarInfo(path)
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    packed = gzip.compress(stream.getvalue(), mtime=0)
    await fleet.manifests.put(digest_of(packed), packed)
    bundle = Bundle(digest=digest_of(packed), size_bytes=len(packed))
    return Assignment(name=NAME, scope="fact.role.web", bundle=bundle, targets=["role=web"], manifest=NAME)


async def assign(fleet: Fleet, **files: str) -> None:
    """Assign a new revision with these files; a name without a suffix is of a YAML file."""
    made = msgspec.to_builtins(await store(fleet, {f"{name}.yaml": text for name, text in files.items()}))
    documents = Documents(fleet, fleet.assignments, "CCM_ASSIGNMENTS")
    await documents.change(KEY, lambda _: made, base=OWN)  # type: ignore[arg-type]


async def ask(site: Site, query: str) -> dict[str, Any]:
    """The answer to a question about the lines."""
    status, said = await site.ask("GET", f"{PATH}&{query}")
    assert status == 200, said
    found: dict[str, Any] = said
    return found


def lines_of(said: Mapping[str, Any]) -> dict[str, list[str]]:
    """The added and removed lines of each file."""
    return {
        one["path"]: [line for line in one.get("text", "").splitlines() if line[0] in "+-"]
        for one in said["diff"].get("files", [])
    }


async def test_the_lines_of_a_revision_and_of_a_rollback_are_shown_without_secrets() -> None:
    secret = "password: hunter1\nprivate_key: |\n  -----BEGIN\n  planted1\n"
    async with served() as site:
        await site.sign_in()
        fleet = fleet_on(MemoryBus(site.broker, "op"))
        await assign(fleet, manifest="port: 80\nname: <b>x</b>\n", app=secret)
        await assign(
            fleet, manifest="port: 81\nname: \x1b[2J\u202e\n", app=secret.replace("1", "2"), more="a: 1\n"
        )
        first, second, back = [await ask(site, word) for word in ("changes=1", "changes=2", "rollback=1")]
        raw = json.dumps([first, second, back])

    assert (first["before"], second["before"], back["before"]) == (0, 1, 2)
    assert lines_of(first)[MANIFEST] == ["+port: 80", "+name: <b>x</b>"]
    assert lines_of(second) == {
        "": lines_of(second)[""],
        "app.yaml": [],
        MANIFEST: ["-port: 80", "-name: <b>x</b>", "+port: 81", "+name: \\x1b[2J\\u202e"],
        "more.yaml": ["+a: 1"],
    }
    assert [line[:8] for line in lines_of(second)[""]] == ["-bundle:", "+bundle:"]
    assert [one.get("why", "") for one in second["diff"]["files"]] == [
        "",
        "only masked values differ",
        "",
        "",
    ]
    assert [one.get("action", "change") for one in back["diff"]["files"]] == [
        "change",
        "change",
        "change",
        "remove",
    ]
    assert lines_of(back)[MANIFEST] == ["-port: 81", "-name: \\x1b[2J\\u202e", "+port: 80", "+name: <b>x</b>"]
    assert back["command"] == "ccmctl rollback web --to 1 --scope role=web"
    assert not any(word in raw for word in ("hunter", "planted", "BEGIN"))


async def test_a_long_difference_is_cut_and_says_so() -> None:
    async with served() as site:
        await site.sign_in()
        fleet = fleet_on(MemoryBus(site.broker, "op"))
        await assign(fleet, manifest="a: 1\n")
        await assign(fleet, manifest="a: 1\n" + "".join(f"b{number}: 1\n" for number in range(2000)))
        said = await ask(site, "changes=2")

    texts = [one.get("text", "") for one in said["diff"]["files"]]
    left_out = sum(one.get("left_out", 0) for one in said["diff"]["files"])
    assert sum(text.count("\n") for text in texts) == DIFF_LINES
    assert 1500 < left_out < 1520
    assert len(json.dumps(said)) < 70_000


@pytest.mark.parametrize("word", ["x", "-1", "9" * 30, "", "3"])
async def test_a_revision_that_is_not_kept_has_no_lines(word: str) -> None:
    async with served() as site:
        await site.sign_in()
        await assign(fleet_on(MemoryBus(site.broker, "op")), manifest="a: 1\n")
        said = [await ask(site, f"{kind}={word}") for kind in ("changes", "rollback")]
        kept = await ask(site, "changes=1")

    assert [one["diff"] for one in said] == [{}, {}]
    assert all("is not stored" in one["problem"] for one in said)
    assert (kept["problem"], lines_of(kept)[MANIFEST]) == ("", ["+a: 1"])


async def test_without_its_bundle_a_revision_has_no_made_up_lines() -> None:
    async with served() as site:
        await site.sign_in()
        fleet = fleet_on(MemoryBus(site.broker, "op"))
        await assign(fleet, manifest="a: 1\n")
        await assign(fleet, manifest="a: 2\n")
        before = await ask(site, "changes=2")
        digest = (await store(fleet, {MANIFEST: "a: 1\n"})).bundle.digest
        stored = {one.name: one.revision for one in await fleet.manifests.all()}
        assert await fleet.manifests.remove(digest, stored[digest])
        after, back = await ask(site, "changes=2"), await ask(site, "rollback=1")

    assert lines_of(before)[MANIFEST] == ["-a: 1", "+a: 2"]
    assert (after["diff"], back["diff"]) == ({}, {})
    assert "is no longer stored" in after["problem"]
    assert "cannot be restored" in back["problem"]


async def test_lines_are_of_verified_revisions_only() -> None:
    scene = Scene()
    async with served(adapt=scene.adapt) as site:
        await site.sign_in()
        anna = fleet_on(MemoryBus(site.broker, "anna", scene.anna), scene.trust)
        await assign(anna, manifest="a: 1\n")
        await assign(anna, manifest="a: 2\n")
        forged = await store(anna, {MANIFEST: "a: planted\n"})
        bucket = MemoryBus(site.broker, "broker").bucket("CCM_ASSIGNMENTS")
        newest = await bucket.get(KEY)
        assert newest is not None
        body = Stamped(
            bucket="CCM_ASSIGNMENTS", key=KEY, number=NOW_MS + 9, count=3, body=msgspec.to_builtins(forged)
        )
        await bucket.store_signed(KEY, msgspec.json.encode(body), newest.revision, "")
        control, refused, not_back = [
            await ask(site, word) for word in ("changes=2", "changes=3", "rollback=3")
        ]
        back = await ask(site, "rollback=1")
        await assign(anna, manifest="a: 4\n")
        _, listed = await site.ask("GET", PATH)
        number = listed["revisions"][0]["revision"]
        later = await ask(site, f"changes={number}")

    assert lines_of(control)[MANIFEST] == ["-a: 1", "+a: 2"]
    assert (refused["diff"], not_back["diff"]) == ({}, {})
    assert all(
        "revision 3 is not verified: it is not signed" in one["problem"] for one in (refused, not_back)
    )
    assert (back["before"], back["unverified"], lines_of(back)[MANIFEST]) == (2, [3], ["-a: 2", "+a: 1"])
    assert (later["before"], later["unverified"], lines_of(later)[MANIFEST]) == (2, [3], ["-a: 2", "+a: 4"])
    assert "planted" not in json.dumps([control, refused, not_back, back, later])


async def test_lines_need_a_session_and_leave_room_for_others() -> None:
    async with served() as site:
        closed, _ = await site.ask("GET", f"{PATH}&changes=1")
        await site.sign_in()
        await assign(fleet_on(MemoryBus(site.broker, "op")), manifest="a: 1\n")
        answers = await asyncio.gather(*(site.ask("GET", f"{PATH}&changes=1") for _ in range(30)))

    assert closed == 401
    assert {status for status, _ in answers} <= {200, 503}
    assert 200 in {status for status, _ in answers}
