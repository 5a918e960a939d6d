"""Hostile archives and servers, through the whole of an apply: a clear error each time, and nothing outside is touched."""

from __future__ import annotations

import getpass
import grp
import gzip
import hashlib
import io
import json
import os
import tarfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ccm_agent.app import App
from ccm_agent.engine.request import ApplyOptions, ManifestSource
from ccm_agent.model.outcome import TransactionEvent

Answer = Callable[[BaseHTTPRequestHandler], None]


def tar(**entries: str) -> bytes:
    """A gzipped tar of files."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in entries.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content.encode()))
    return gzip.compress(out.getvalue(), mtime=0)


def link(name: str, target: str, kind: bytes, then: str = "") -> bytes:
    """A gzipped tar of a link, and perhaps a file behind it."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        info = tarfile.TarInfo(name)
        info.type, info.linkname = kind, target
        archive.addfile(info)
        if then:
            archive.addfile(tarfile.TarInfo(then), io.BytesIO())
    return gzip.compress(out.getvalue(), mtime=0)


def zipped(*entries: tuple[str, str, int]) -> bytes:
    """A zip of entries: name, content (of a symlink its target), type bits."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content, kind in entries:
            info = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
            info.external_attr, info.compress_type = (kind | 0o644) << 16, zipfile.ZIP_DEFLATED
            archive.writestr(info, content)
    return out.getvalue()


def body(content: bytes, claimed: int | None = None) -> Answer:
    """Answer with a body, which may be shorter than it is said to be."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(content) if claimed is None else claimed))
        handler.end_headers()
        handler.wfile.write(content)

    return answer


def redirect(target: str) -> Answer:
    """Answer that it is elsewhere."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(302)
        handler.send_header("Location", target)
        handler.end_headers()

    return answer


@contextmanager
def stalling() -> Iterator[Answer]:
    """Answer with a beginning, and then with nothing until the test ends."""
    over = threading.Event()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000000")
        handler.end_headers()
        handler.wfile.write(b"\x1f\x8b")
        handler.wfile.flush()
        over.wait(30)

    try:
        yield answer
    finally:
        over.set()


def in_pieces(content: bytes, can_go_on: bool, asked: list[str], folder: Path) -> Answer:
    """Answer with half of the content, and hang up when that has arrived; then with the rest, or all where one cannot go on."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        where = handler.headers.get("Range", "")
        asked.append(where)
        start = int(where.removeprefix("bytes=").rstrip("-")) if where and can_go_on else 0
        rest = content[start:] if where else content[: len(content) // 2]
        handler.send_response(206 if start else 200)
        handler.send_header("ETag", '"one"')
        handler.send_header("Content-Length", str(len(content) - start))
        if start:
            handler.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        handler.end_headers()
        handler.wfile.write(rest)
        handler.wfile.flush()
        over = time.monotonic() + 20
        while not where and time.monotonic() < over:
            if len(rest) in received(folder):
                break
            time.sleep(0.005)

    return answer


def received(folder: Path) -> set[int]:
    """Sizes of the files without a name that this process writes in a folder."""
    sizes = set()
    for fd in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if os.readlink(f"/proc/self/fd/{fd}").startswith(f"{folder}/#"):
                sizes.add(os.stat(f"/proc/self/fd/{fd}").st_size)
    return sizes


@contextmanager
def serving(answer: Answer) -> Iterator[str]:
    """A server on loopback that answers everything in one way."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def apply(folder: Path, url: str, file: str = "app.tar.gz", **more: Any) -> TransactionEvent:
    """Apply an archive; its event."""
    properties = {
        "ensure": "present", "url": f"{url}/{file}", "owner": getpass.getuser(), "group": grp.getgrgid(os.getgid()).gr_name,
        "extract_parent": str(folder / "opt"), "creates": str(folder / "opt/app"), **more,
    }  # fmt: skip
    manifest = {"ccm": {"resources": [{"archive": [{str(folder / file): properties}]}]}}
    events: list[TransactionEvent] = []
    source = ManifestSource(text=json.dumps(manifest).encode(), directory=str(folder), name="m.yaml")
    await App({}, str(folder)).engine().apply(source, ApplyOptions(on_event=events.append, facts={}))
    (event,) = events
    return event


def tree(folder: Path) -> dict[str, str]:
    """What is in a folder, but for the directory that is unpacked into."""
    return {
        str(path.relative_to(folder)): path.read_text(errors="replace")
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "opt" not in path.relative_to(folder).parts
    }


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with something in it that must stay as it is."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/file").write_text("as it was")
    return tmp_path


def landed_outside() -> bool:
    """Whether an entry with an absolute name has arrived there."""
    return os.path.lexists("/tmp/ccm-hostile")


HOSTILE = {
    "traversal": (tar(**{"../outside/file": "changed"}), "leads outside the target directory"),
    "an absolute name": (tar(**{"/tmp/ccm-hostile": "x"}), "has an absolute name"),
    "a symlink that leads out": (
        link("l", "../outside", tarfile.SYMTYPE, "l/file"),
        "is a symlink to '../outside'",
    ),
    "a hardlink that leads out": (
        link("l", "../outside/file", tarfile.LNKTYPE),
        "is a hardlink to '../outside/file'",
    ),
    "a device": (link("d", "", tarfile.CHRTYPE), "is not a file, directory or link"),
    "a FIFO": (link("p", "", tarfile.FIFOTYPE), "is not a file, directory or link"),
    "an absolute symlink": (link("l", "/etc/passwd", tarfile.SYMTYPE), "is a symlink to '/etc/passwd'"),
    "an absolute hardlink": (link("l", "/etc/passwd", tarfile.LNKTYPE), "is a hardlink to '/etc/passwd'"),
    "a name with dots in the middle": (
        tar(**{"a/../../outside/file": "changed"}),
        "leads outside the target directory",
    ),
    "good entries before the bad one": (
        tar(app="fine", **{"../outside/file": "changed"}),
        "leads outside the target directory",
    ),
    "truncated": (tar(app=os.urandom(4000).hex())[:-500], "cannot be unpacked"),
    "not an archive": (b"<html>not found</html>", "cannot be unpacked"),
}


@pytest.mark.parametrize("name", sorted(HOSTILE))
async def test_a_hostile_archive_is_a_clear_error_and_touches_nothing(place: Path, name: str) -> None:
    content, sentence = HOSTILE[name]

    with serving(body(content)) as url:
        event = await apply(place, url)

    assert event.failed
    assert sentence in event.error[0]
    assert list((place / "opt").iterdir()) == []
    assert not landed_outside()
    (place / "app.tar.gz").unlink()  # with `creates` the archive stays, as it came
    assert tree(place) == {"outside/file": "as it was"}


S_IFREG, S_IFLNK = 0o100000, 0o120000
HOSTILE_ZIP = {
    "traversal": (zipped(("../outside/file", "changed", S_IFREG)), "leads outside the target directory"),
    "an absolute name": (zipped(("/tmp/ccm-hostile", "x", S_IFREG)), "has an absolute name"),
    "a symlink that leads out": (
        zipped(("l", "../outside", S_IFLNK), ("l/file", "changed", S_IFREG)), "is a symlink to '../outside'"
    ),
    "truncated": (zipped(("app", os.urandom(4000).hex(), S_IFREG))[:-500], "cannot be unpacked"),
    "not an archive": (b"<html>not found</html>", "cannot be unpacked"),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(HOSTILE_ZIP))
async def test_a_hostile_zip_is_a_clear_error_and_touches_nothing(place: Path, name: str) -> None:
    content, sentence = HOSTILE_ZIP[name]

    with serving(body(content)) as url:
        event = await apply(place, url, "app.zip")

    assert event.failed
    assert sentence in event.error[0]
    assert list((place / "opt").iterdir()) == []
    assert not landed_outside()
    (place / "app.zip").unlink()
    assert tree(place) == {"outside/file": "as it was"}


@pytest.mark.parametrize("creates", ["app", ""])
async def test_a_symlink_in_the_way_leads_nothing_out_and_the_next_run_fails_too(
    place: Path, creates: str
) -> None:
    (place / "opt").mkdir()
    (place / "opt/way").symlink_to(place / "outside")
    more = {"creates": str(place / "opt/app") if creates else ""}

    with serving(body(tar(app="fine", **{"way/file": "changed"}))) as url:
        events = [await apply(place, url, **more) for _ in range(2)]

    assert all(event.failed for event in events)
    assert "leads out of" in events[1].error[0]
    assert (place / "outside/file").read_text() == "as it was"
    assert not creates or not (place / "opt/app").exists()


async def test_a_directory_in_the_way_fails_each_time_and_leaves_no_success_marker(
    place: Path,
) -> None:
    (place / "opt/way").mkdir(parents=True)

    with serving(body(tar(app="fine", way="a file"))) as url:
        events = [await apply(place, url) for _ in range(2)]

    assert [event.failed for event in events] == [True, True]
    assert sorted(path.name for path in (place / "opt").iterdir()) == ["way"]


async def test_a_new_release_that_cannot_be_unpacked_is_tried_again(place: Path) -> None:
    old, new = tar(app="old", way="a file"), tar(app="new", **{"way/x": "under a file"})
    with serving(body(old)) as url:
        await apply(place, url, checksum=hashlib.sha256(old).hexdigest())

    with serving(body(new)) as url:
        events = [await apply(place, url, checksum=hashlib.sha256(new).hexdigest()) for _ in range(2)]

    assert [event.failed for event in events] == [True, True]
    assert (place / "app.tar.gz").read_bytes() == old


async def test_a_bomb_of_entries_is_refused_before_anything_is_written(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ccm_agent.system.archives.unpack.HONEST_BYTES", 1 << 20)
    monkeypatch.setattr("ccm_agent.system.archives.unpack.HONEST_RATIO", 10)
    content = zipped(*((f"f{number}", "0" * 20_000, S_IFREG) for number in range(100)))

    with serving(body(content)) as url:
        event = await apply(place, url, "app.zip")

    assert "unpacks to more than 1048576 bytes" in event.error[0]
    assert list((place / "opt").iterdir()) == []


async def test_a_bomb_is_refused_before_anything_is_written(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ccm_agent.system.archives.unpack.HONEST_BYTES", 1 << 20)
    monkeypatch.setattr("ccm_agent.system.archives.unpack.HONEST_RATIO", 10)

    with serving(body(tar(app="0" * (4 << 20)))) as url:
        event = await apply(place, url)

    assert "unpacks to more than 1048576 bytes" in event.error[0]
    assert list((place / "opt").iterdir()) == []


async def test_a_wrong_checksum_leaves_no_file(place: Path) -> None:
    wanted = hashlib.sha256(b"another").hexdigest()

    with serving(body(tar(app="x"))) as url:
        event = await apply(place, url, checksum=wanted)

    assert f'checksum mismatch, expected "{wanted}"' in event.error[0]
    assert tree(place) == {"outside/file": "as it was"}


async def test_a_server_that_stalls_is_left_after_the_time_limit(place: Path) -> None:
    with stalling() as answer, serving(answer) as url:
        event = await apply(place, url, timeout="1s")

    assert "not downloaded and unpacked within `timeout: 1s`" in event.error[0]
    assert tree(place) == {"outside/file": "as it was"}


@pytest.mark.parametrize(
    "target", ["file:///etc/passwd", "ftp://127.0.0.1/app.tar.gz", "gopher://127.0.0.1/"]
)
async def test_a_redirect_away_from_the_web_is_not_followed(place: Path, target: str) -> None:
    with serving(redirect(target)) as url:
        event = await apply(place, url)

    assert "only http and https are supported" in event.error[0]
    assert tree(place) == {"outside/file": "as it was"}


@pytest.mark.parametrize("claimed", [1 << 39, 1 << 62])
async def test_more_than_there_is_room_for_is_refused_before_a_byte_is_written(
    place: Path, claimed: int
) -> None:
    with serving(body(tar(app="x"), claimed=claimed)) as url:
        event = await apply(place, url)

    assert event.failed
    assert "are free; free some space" in event.error[0] or "is larger than" in event.error[0]
    assert tree(place) == {"outside/file": "as it was"}


@pytest.mark.parametrize(("more", "mode"), [({}, 0o4755), ({"drop_special_bits": True}, 0o755)])
async def test_a_program_that_would_run_as_its_owner_does_not_when_the_manifest_says_so(
    place: Path, more: dict[str, Any], mode: int
) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        info = tarfile.TarInfo("app")
        info.mode, info.uid, info.gid = 0o4755, os.getuid(), os.getgid()
        archive.addfile(info)
    with serving(body(gzip.compress(out.getvalue(), mtime=0))) as url:
        event = await apply(place, url, **more)

    assert (event.changed, event.error) == (True, [])
    assert (place / "opt/app").stat().st_mode & 0o7777 == mode


async def test_a_redirect_that_never_ends_is_given_up(place: Path) -> None:
    with serving(redirect("/again.tar.gz")) as url:
        event = await apply(place, url)

    assert "redirects more than 10 times" in event.error[0]
    assert tree(place) == {"outside/file": "as it was"}


@pytest.mark.parametrize("can_go_on", [True, False])
async def test_a_transfer_that_breaks_off_continues_or_begins_again(
    place: Path, can_go_on: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "ccm_agent.system.http.download.WRITE_BYTES", 1
    )  # so that the server sees what has arrived
    asked: list[str] = []
    content = tar(app=os.urandom(600).hex())
    checksum = hashlib.sha256(content).hexdigest()

    with serving(in_pieces(content, can_go_on, asked, place)) as url:
        event = await apply(place, url, checksum=checksum)

    assert (event.outcome.value, event.error) == ("changed", [])
    assert asked == ["", f"bytes={len(content) // 2}-"]
    assert hashlib.sha256((place / "app.tar.gz").read_bytes()).hexdigest() == checksum
    assert (place / "opt/app").exists()
    assert tree(place).keys() == {"outside/file", "app.tar.gz"}


async def test_a_truncated_answer_is_not_an_archive(place: Path) -> None:
    content = tar(app="x")

    with serving(body(content[: len(content) // 2], claimed=len(content))) as url:
        event = await apply(place, url)

    assert event.failed
    assert event.code == "host.download"
    assert tree(place) == {"outside/file": "as it was"}


async def test_a_password_is_in_no_event_and_no_error(place: Path) -> None:
    def refuse(handler: BaseHTTPRequestHandler) -> None:
        handler.send_error(401)

    with serving(refuse) as url:
        event = await apply(
            place, url.replace("http://", "http://me:hunter2@"), username="me", password="hunter3",
            headers={"X-Token": "hunter4"},
        )  # fmt: skip

    assert event.failed
    assert b"hunter" not in msgspec.json.encode(event)
