"""`ccmctl bundle list|get`: what needs a stored bundle, and getting one back as files."""

from __future__ import annotations

import asyncio
import io
import stat
import tarfile
from pathlib import Path

import msgspec
import pytest

from ccm_agent.bus.subjects import request_subject, schedule_subject
from ccm_agent.model.bundle import Bundle, PartialManifest
from ccm_agent.model.run_records import RunRecord, RunState
from ccm_agent.model.wire import MANIFEST_APPLY, ManifestRequest
from ccm_agent.testing.memory_bus import MemoryBus
from ccm_ctl.fleet.stored_schedule import Schedule
from tests.support.bundles import digest_of, packed
from tests.support.controller import NOW, Desk, FakeNode

MANIFEST = "ccm: {{resources: [{{exec: [{{'{word}': {{}}}}]}}]}}\n"
RUN = "2zzzzzzzzzzzzzzzzzzzzzzzzzz"


def put(desk: Desk, content: bytes, name: str = "") -> str:
    """Store a bundle; its digest."""
    digest = digest_of(content)
    asyncio.run(MemoryBus(desk.broker, "op").objects("CCM_MANIFESTS").put(name or digest, content))
    return digest


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


def test_schedules_and_open_runs_need_their_bundles_and_ended_runs_do_not() -> None:
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
        done: [],
    }


def test_objects_that_are_not_bundles_are_not_listed_and_an_unreadable_revision_is_named() -> None:
    desk = Desk()
    digest = put(desk, packed("a"))
    put(desk, b"source", name="site.tar.gz")
    put_key(desk, "CCM_ASSIGNMENTS", "all.web", b"\x1b[2J")

    said = desk.ccmctl("bundle", "list")

    assert [line.split()[0] for line in said.out.splitlines()] == ["DIGEST", digest[:12]]
    assert said.err == (
        "ccmctl: warning: entry 1 of the assignment all.web: cannot be read; a bundle that it needs is not marked as needed\n"
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
    assert said[0].err == f"ccmctl: {tmp_path}/full: is not empty; name a new or an empty directory\n"
    assert said[3].err == "ccmctl: .: is the current directory; name a new directory in it\n"
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == [
        "empty", "file", "full", "full/mine", "link",
    ]  # fmt: skip


def test_an_ambiguous_unknown_or_wrong_digest_is_an_error(tmp_path: Path) -> None:
    desk = Desk()
    for name in ("aaaa" + "0" * 60, "aaaa" + "1" * 60):
        put(desk, b"", name=name)

    ambiguous, unknown, wrong = (
        desk.ccmctl("bundle", "get", word, "--out", str(tmp_path / "out")).err
        for word in ("aaaa", "bbbb", "../a")
    )

    assert ambiguous == (
        "ccmctl: aaaa: 2 bundles begin so, such as aaaa00000000 and aaaa11111111; write more digits\n"
    )
    assert unknown == "ccmctl: bbbb: there is no such bundle; `ccmctl bundle list` shows which there are\n"
    assert wrong.startswith("ccmctl: ../a: not a digest; write at least 4 hexadecimal digits")


def test_bytes_of_another_digest_and_paths_that_lead_out_write_nothing(tmp_path: Path) -> None:
    desk = Desk()
    put(desk, packed("other"), name="c" * 64)
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        archive.addfile(tarfile.TarInfo("../evil"))
    evil = put(desk, stream.getvalue())

    (tmp_path / "in").mkdir()

    said = [desk.ccmctl("bundle", "get", word, "--out", str(tmp_path / "in/out")) for word in ("cccc", evil)]

    assert [one.code for one in said] == [1, 1]
    assert "has another one; refused" in said[0].err
    assert "leads out of the bundle" in said[1].err
    assert [path.name for path in tmp_path.rglob("*")] == ["in"]
