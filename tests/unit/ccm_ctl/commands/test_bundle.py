"""`ccmctl bundle list|get|gc`: what needs a stored bundle, getting one back as files, and removing old ones."""

from __future__ import annotations

import asyncio
import io
import stat
import tarfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from ccm_agent.bus.subjects import request_subject, schedule_subject
from ccm_agent.model.bundle import Bundle, PartialManifest
from ccm_agent.model.records.run_records import RunRecord, RunState
from ccm_agent.model.wire import MANIFEST_APPLY, ManifestRequest
from ccm_agent.testing.memory_bus import MemoryBus
from ccm_ctl.fleet.schedules.stored_schedule import Schedule
from tests.support.bundles import digest_of, packed
from tests.support.controller import NOW, Desk, FakeNode

MANIFEST = "ccm: {{resources: [{{exec: [{{'{word}': {{}}}}]}}]}}\n"
A, B = b"a" * 121, b"b" * 121
RUN = "2zzzzzzzzzzzzzzzzzzzzzzzzzz"


def put(desk: Desk, content: bytes, name: str = "") -> str:
    """Store a bundle; its digest."""
    digest = digest_of(content)
    asyncio.run(MemoryBus(desk.broker, "op").objects("CCM_MANIFESTS").put(name or digest, content))
    return digest


def put_old(desk: Desk, content: bytes, age: timedelta = timedelta(days=8), name: str = "") -> str:
    """Store a bundle some time ago; its digest."""
    digest = put(desk, content, name)
    desk.broker.object_times[name or digest] = NOW - age
    return digest


def stored(desk: Desk) -> set[str]:
    return set(desk.broker.objects["CCM_MANIFESTS"])


def put_key(desk: Desk, bucket: str, key: str, value: bytes) -> None:
    asyncio.run(MemoryBus(desk.broker, "op").bucket(bucket).put(key, value))


def assign(desk: Desk, folder: Path, word: str) -> None:
    path = folder / "site.yaml"
    path.write_text(MANIFEST.format(word=word))
    said = desk.ccmctl("assign", "web", str(path), "-t", "role=web", "--yes")
    assert said.code == 0, said.err


def a_schedule(request: ManifestRequest) -> Schedule:
    return Schedule(
        name="nightly",
        subject=schedule_subject(MANIFEST_APPLY, "all", "nightly"),
        protocol=MANIFEST_APPLY,
        scope="all",
        target=request_subject(MANIFEST_APPLY, "all"),
        when="0 0 3 * * *",
        stored=NOW,
        request=request,
    )


def references(desk: Desk) -> dict[str, list[tuple[str, str]]]:
    """Kind and name of what needs each bundle."""
    listed = desk.ccmctl("bundle", "list", "--json").named("bundle")
    return {
        one["digest"]: [(each["kind"], each["name"]) for each in one.get("references", ())] for one in listed
    }


def test_current_and_earlier_revisions_of_an_assignment_need_their_bundles(tmp_path: Path) -> None:
    desk = Desk(FakeNode("web1", {"role": "web"}))
    assign(desk, tmp_path, "one")
    assign(desk, tmp_path, "two")
    first, second = desk.broker.objects["CCM_MANIFESTS"]

    before = references(desk)
    screen = desk.ccmctl("bundle", "list").out
    desk.ccmctl("unassign", "web", "--yes")

    assert before == {first: [("revision", "web")], second: [("assignment", "web")]}
    assert [line.split("  ")[-1].strip() for line in screen.splitlines()] == [
        "NEEDED BY",
        "assignment web",
        "revision 1 of web",
    ]
    assert references(desk) == {first: [("revision", "web")], second: [("revision", "web")]}


def test_schedules_and_runs_on_record_need_their_bundles() -> None:
    desk = Desk()
    scheduled, part, open_one, done = (put(desk, packed(word)) for word in ("a", "b", "c", "d"))
    bundles = [Bundle(digest=digest, size_bytes=1) for digest in (scheduled, part, open_one, done)]
    for number, state in ((2, "running"), (3, "done")):
        run = f"{RUN[:-1]}{number}"
        request = {"bundle": {"digest": bundles[number].digest, "size_bytes": 1}}
        record = RunRecord(run=run, action="apply", name="site", requester="op", time=NOW, request=request)
        put_key(desk, "CCM_RUNS", f"op.{run}.request", msgspec.json.encode(record))
        put_key(
            desk,
            "CCM_RUNS",
            f"op.{run}.state",
            msgspec.json.encode(RunState(run=run, state=state, time=NOW)),
        )
    desk.schedules = [
        a_schedule(ManifestRequest(protocol=MANIFEST_APPLY, name="site", bundle=bundles[0])),
        a_schedule(
            ManifestRequest(protocol=MANIFEST_APPLY, name="site", part=PartialManifest(bundle=bundles[1]))
        ),
    ]

    assert references(desk) == {
        scheduled: [("schedule", "nightly")],
        part: [("schedule", "nightly")],
        open_one: [("run", f"{RUN[:-1]}2")],
        done: [("ended run", f"{RUN[:-1]}3")],
    }
    assert "1 ended run\n" in desk.ccmctl("bundle", "list").out


def test_objects_that_are_not_bundles_are_not_listed_and_an_unreadable_revision_is_named() -> None:
    desk = Desk()
    digest = put(desk, packed("a"))
    put(desk, b"source", name="site.tar.gz")
    put_key(desk, "CCM_ASSIGNMENTS", "all.web", b"\x1b[2J")

    said = desk.ccmctl("bundle", "list")

    assert [line.split()[0] for line in said.out.splitlines()] == ["DIGEST", digest[:12]]
    assert said.err == (
        "ccmctl: warning: entry 1 of the assignment all.web: cannot be read, so a bundle that it needs is not marked as needed\n"
    )


def test_without_bundles_that_is_said() -> None:
    assert Desk().ccmctl("bundle", "list").out == "no bundles are stored\n"


@pytest.mark.parametrize("exists", [False, True], ids=["new", "empty"])
def test_a_bundle_is_unpacked_by_the_beginning_of_its_digest(tmp_path: Path, exists: bool) -> None:
    desk, out = Desk(), tmp_path / "out"
    digest = put(desk, packed("ccm: {}\n"))
    if exists:
        out.mkdir()

    said = desk.ccmctl("bundle", "get", digest[:6], "--out", str(out), "--json")

    assert said.code == 0, said.err
    assert said.named("bundle")[0]["folder"] == str(out)
    assert {path.name: path.read_text() for path in out.iterdir()} == {"manifest.yaml": "ccm: {}\n"}
    assert stat.S_IMODE(out.stat().st_mode) == 0o700
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_directory_with_content_a_file_a_symlink_and_the_current_directory_stay_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk()
    digest = put(desk, packed("ccm: {}\n"))
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine").write_text("mine")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("empty")
    monkeypatch.chdir(tmp_path / "empty")

    said = [
        desk.ccmctl("bundle", "get", digest, "--out", str(out))
        for out in (tmp_path / "full", tmp_path / "file", tmp_path / "link", ".", tmp_path / "no/out")
    ]

    assert [one.code for one in said] == [1] * 5
    assert said[0].err == (
        f"ccmctl: --out {tmp_path}/full: exists and is not an empty folder; name another one\n"
    )
    assert said[3].err == "ccmctl: --out .: is the current directory; name a new directory in it\n"
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == [
        "empty", "file", "full", "full/mine", "link",
    ]  # fmt: skip


def test_an_ambiguous_unknown_or_wrong_digest_is_an_error(tmp_path: Path) -> None:
    desk = Desk()
    for name in ("aaaa" + "0" * 60, "aaaa" + "1" * 60):
        put(desk, b"")
        desk.broker.objects["CCM_MANIFESTS"][name] = b""

    ambiguous, unknown, wrong = (
        desk.ccmctl("bundle", "get", word, "--out", str(tmp_path / "out")).err
        for word in ("aaaa", "bbbb", "../a")
    )

    assert ambiguous == (
        "ccmctl: aaaa: 2 bundles start with this, such as aaaa00000000 and aaaa11111111; write more digits\n"
    )
    assert unknown == "ccmctl: bbbb: there is no such bundle; see `ccmctl bundle list`\n"
    assert wrong.startswith("ccmctl: ../a: not a digest; write at least 4 hexadecimal digits")


def test_bytes_of_another_digest_and_paths_that_lead_out_write_nothing(tmp_path: Path) -> None:
    desk = Desk()
    put(desk, b"")
    desk.broker.objects["CCM_MANIFESTS"]["c" * 64] = packed("other")
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        archive.addfile(tarfile.TarInfo("../evil"))
    evil = put(desk, stream.getvalue())

    (tmp_path / "in").mkdir()

    said = [desk.ccmctl("bundle", "get", word, "--out", str(tmp_path / "in/out")) for word in ("cccc", evil)]

    assert [one.code for one in said] == [1, 1]
    assert "does not match this digest; refused" in said[0].err
    assert "leads out of the bundle" in said[1].err
    assert [path.name for path in tmp_path.rglob("*")] == ["in"]


def test_old_bundles_that_nothing_needs_are_removed(tmp_path: Path) -> None:
    desk = Desk(FakeNode("web1", {"role": "web"}))
    assign(desk, tmp_path, "one")
    assign(desk, tmp_path, "two")
    needed = stored(desk)
    for digest in needed:
        desk.broker.object_times[digest] = NOW - timedelta(days=90)
    unused = put_old(desk, A)
    young = put_old(desk, B, timedelta(days=6))
    source = put_old(desk, b"source", name="site.tar.gz")
    put_old(desk, b"source", name="site.tar.gz")

    said = desk.ccmctl("bundle", "gc", "--yes")

    assert (said.code, said.err) == (0, "")
    assert said.out == f"DIGEST        SIZE   STORED\n{unused[:12]}  121 B  8d ago\nremoved 1 bundle, 121 B\n"
    assert source not in needed
    assert stored(desk) == needed | {young, "site.tar.gz"}


def test_a_dry_run_removes_nothing_and_the_age_can_be_chosen() -> None:
    desk = Desk()
    digests = {put_old(desk, word, timedelta(hours=hours)) for word, hours in ((A, 2), (B, 200))}

    said = desk.ccmctl("bundle", "gc", "--older-than", "1h", "--dry-run", "--json")
    screen = desk.ccmctl("bundle", "gc", "--dry-run").out

    assert {one["digest"]: one["removed"] for one in said.named("bundle")} == dict.fromkeys(digests, False)
    assert screen.splitlines()[-1] == "would remove 1 bundle, 121 B"
    assert stored(desk) == digests


def test_removing_bundles_is_confirmed_first() -> None:
    desk = Desk()
    digest = put_old(desk, A)

    scripted = desk.ccmctl("bundle", "gc")
    declined = desk.ccmctl("bundle", "gc", typed="n\n")
    agreed = desk.ccmctl("bundle", "gc", typed="y\n")

    assert (scripted.code, declined.code, agreed.code) == (1, 1, 0)
    assert "remove 1 bundle, 121 B?" in declined.out + declined.err
    assert "removed 1 bundle, 121 B" in agreed.out
    assert digest not in stored(desk)


def test_a_bundle_of_a_command_that_is_under_way_is_too_young() -> None:
    desk = Desk()
    put_old(desk, A, timedelta(minutes=59))

    refused = desk.ccmctl("bundle", "gc", "--older-than", "59m", "--yes")
    kept = desk.ccmctl("bundle", "gc", "--older-than", "1h", "--yes")

    assert (refused.code, refused.err) == (
        1,
        "ccmctl: --older-than 59m: use at least 1h, because running commands need their bundles\n",
    )
    assert kept.out == "nothing to remove: all bundles are needed or newer than 1h\n"
    assert len(stored(desk)) == 1


def test_storing_a_bundle_again_makes_it_young(tmp_path: Path) -> None:
    desk = Desk()
    put_old(desk, A)
    put(desk, A)

    assert desk.ccmctl("bundle", "gc", "--yes").out.startswith("nothing to remove")


def copy(desk: Desk, bucket: str, key: str) -> None:
    """Put an entry into a bucket as a redirected read does."""

    async def inject() -> None:
        desk.broker.inject(f"$KV.{bucket}.{key}", b"{}", {"Nats-Stream": f"KV_{bucket}"})

    asyncio.run(inject())


def _copied_assignment(desk: Desk) -> None:
    copy(desk, "CCM_ASSIGNMENTS", "all.web")


def _copied_record(desk: Desk) -> None:
    copy(desk, "CCM_RUNS", f"op.{RUN}.request")


def _unreadable_schedule(desk: Desk) -> None:
    desk.unreadable_schedules.append("ccm.schedule.x")


@pytest.mark.parametrize(
    ("spoil", "named"),
    [
        pytest.param(
            lambda desk: put_key(desk, "CCM_ASSIGNMENTS", "all.web", b"{"),
            "entry 1 of the assignment all.web: cannot be read",
            id="an assignment",
        ),
        pytest.param(
            lambda desk: put_key(desk, "CCM_RUNS", f"op.{RUN}.request", b"{"),
            f"the record op.{RUN}.request: cannot be read",
            id="the record of a run",
        ),
        pytest.param(
            lambda desk: put_key(desk, "CCM_RUNS", f"=rollout.{RUN}", b"{"),
            f"the record =rollout.{RUN}: cannot be read",
            id="a rollout",
        ),
        pytest.param(_unreadable_schedule, "the schedule ccm.schedule.x: cannot be read", id="a schedule"),
        pytest.param(_copied_assignment, "all.web: refused: the entry", id="a copy over an assignment"),
        pytest.param(_copied_record, f"op.{RUN}.request: refused: the entry", id="a copy over a record"),
        pytest.param(
            lambda desk: desk.broker.deny("op", "$KV.CCM_RUNS.>"), "", id="records that may not be read"
        ),
    ],
)
def test_nothing_is_removed_if_something_that_may_need_it_cannot_be_read(
    spoil: Callable[[Desk], None], named: str
) -> None:
    desk = Desk()
    digest = put_old(desk, A)
    spoil(desk)

    said = desk.ccmctl("bundle", "gc", "--yes")

    assert said.code == 1
    assert named in said.err
    assert stored(desk) == {digest}
