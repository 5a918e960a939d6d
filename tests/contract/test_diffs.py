"""
A plan and the apply after it show equal diffs, on fakes and on a real file system: runs of file, scaffold, archive and apply.

The fakes show what the host shows, so the tests on fakes alone (tests/unit/resources/test_diffs.py) hold on a host.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ccm_agent.app_expressions import make_expressions
from ccm_agent.engine.deps import EngineDeps
from ccm_agent.engine.request import ApplyOptions, ManifestSource
from ccm_agent.engine.run import LocalEngine
from ccm_agent.hiera.sources import Sources
from ccm_agent.model.outcome import TransactionEvent
from ccm_agent.model.ports import Packed
from ccm_agent.model.resource_diff import ResourceDiff
from ccm_agent.resources.catalog import Catalog
from ccm_agent.system.accounts import AccountNames
from ccm_agent.system.archives.unpack import Unpacker
from ccm_agent.system.files import SystemFiles
from ccm_agent.system.state_records import SystemRecords
from ccm_agent.system.trees.trees import SystemTrees
from ccm_agent.testing.clock import FakeClock
from ccm_agent.testing.download import FakeDownload
from ccm_agent.testing.files import FakeFiles
from ccm_agent.testing.records import FakeRecords
from ccm_agent.testing.runner import FakeRunner
from ccm_agent.testing.trees import FakeTrees

URL = "https://example.net/app.tar.gz"


def packed_app() -> bytes:
    """An archive with one file, `app`."""
    out = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=out, mode="wb", mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w") as tar,
    ):
        info = tarfile.TarInfo("app")
        info.size = 4
        tar.addfile(info, io.BytesIO(b"made"))
    return out.getvalue()


ARCHIVE = packed_app()
CHECKSUM = hashlib.sha256(ARCHIVE).hexdigest()


class FakeSide:
    """
    A host in memory.

    Attributes:
        root: The directory with all of it; `work` below it has the manifests.
        owner, group: Of new files.
        files, ports: The ports of the engine.
    """

    def __init__(self) -> None:
        self.root, self.owner, self.group = "/box", "root", "root"
        self.files = FakeFiles()
        self.files.put_directory("/box/work/src")
        self.ports: dict[str, Any] = {
            "trees": FakeTrees(self.files),
            "records": FakeRecords(),
            "unpack": self,
            "download": FakeDownload(write=self.files.put),
        }

    def put(self, path: str, content: bytes, mode: int = 0o644) -> None:
        """Create a file below the root, and its directories."""
        self.files.put(f"{self.root}/{path}", content, mode=mode)

    async def unpack(self, packed: Packed, into: str) -> int:
        """See `Unpack`."""
        self.files.put(f"{into}/app", b"made")
        return 1


def write_file(path: str, content: bytes) -> None:
    """Write a file of this host."""
    Path(path).write_bytes(content)


class RealSide:
    """This host, in a folder that all users may read; see `FakeSide`."""

    def __init__(self, folder: Path) -> None:
        folder.chmod(0o755)
        self.root = str(folder)
        self.owner, self.group = AccountNames().user(os.geteuid()), AccountNames().group(os.getegid())
        self.files = SystemFiles()
        (folder / "work" / "src").mkdir(parents=True)
        self.ports: dict[str, Any] = {
            "trees": SystemTrees(),
            "records": SystemRecords(str(folder / "records")),
            "unpack": Unpacker(),
            "download": FakeDownload(write=write_file),
        }

    def put(self, path: str, content: bytes, mode: int = 0o644) -> None:
        """See `FakeSide.put`."""
        full = Path(self.root, path)
        full.parent.mkdir(parents=True, exist_ok=True)
        full.write_bytes(content)
        full.chmod(mode)


Side = FakeSide | RealSide


@contextmanager
def both_sides() -> Iterator[tuple[FakeSide, RealSide]]:
    """A host in memory and a real one, both empty."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield FakeSide(), RealSide(Path(folder))


async def run(side: Side, *, noop: bool) -> list[TransactionEvent]:
    """The events of a run of `work/site.yaml`, with an engine that has seen nothing before."""
    events: list[TransactionEvent] = []
    side.ports["download"].serve(URL, ARCHIVE)
    engine = LocalEngine(
        EngineDeps(
            runner=FakeRunner(),
            files=side.files,
            clock=FakeClock(),
            catalog=Catalog(),
            make_expressions=make_expressions,
            gather_facts=lambda more: dict(more),
            sources=lambda directory: Sources(side.files, directory=directory),
            directory=f"{side.root}/work",
            port=side.ports.__getitem__,
        )
    )
    summary = await engine.apply(
        ManifestSource(path="site.yaml"), ApplyOptions(noop=noop, diff=True, on_event=events.append)
    )
    assert not summary.reason, summary.reason
    return events


Diffs = dict[str, ResourceDiff | None]


def shown(side: Side, events: list[TransactionEvent]) -> Diffs:
    """The diff of each resource by its reference, without what differs between hosts."""
    found: Diffs = {}
    for event in events:
        text = msgspec.json.encode(event.diff).decode().replace(side.root, "ROOT")
        for name in (side.owner, side.group):
            text = text.replace(f'"{name}"', '"OWNER"')
        key = f"{event.type}#{event.name}".replace(side.root, "ROOT")
        found[key] = msgspec.json.decode(text, type=ResourceDiff | None)
    return found


async def diffs_of(side: Side) -> tuple[Diffs, bool]:
    """The diffs of a plan, which must be those of the apply after it; and whether a resource failed."""
    noop = await run(side, noop=True)
    real = await run(side, noop=False)
    again = await run(side, noop=True)
    if any(one.failed for one in real):
        return {}, True
    planned, applied = shown(side, noop), shown(side, real)
    assert planned == applied
    for one in real:
        if one.type != "apply":
            assert (one.diff not in (None, ResourceDiff())) is one.changed, one
    assert not any(one.changed for one in again if one.type != "apply"), again
    return planned, False


def write_site(side: Side, resources: list[dict[str, Any]], *, nested: bool) -> None:
    """Write the manifest, on its own or as the child of another one."""

    def text(*of: Mapping[str, Any]) -> bytes:
        written = json.dumps({"ccm": {"resources": list(of)}}).replace("ROOT/", f"{side.root}/")
        written = written.replace('"OWNER"', f'"{side.owner}"').replace('"GROUP"', f'"{side.group}"')
        return written.encode()

    if nested:
        side.put("work/child.yaml", text(*resources))
        side.put("work/site.yaml", text({"apply": [{"child.yaml": {}}]}))
    else:
        side.put("work/site.yaml", text(*resources))


async def check(
    before: Mapping[str, tuple[bytes, int]], resources: list[dict[str, Any]], *, nested: bool
) -> None:
    """Plan and apply on both hosts; all four diffs are equal."""
    with both_sides() as sides:
        found = []
        for side in sides:
            for path, (content, mode) in before.items():
                side.put(path, content, mode)
            write_site(side, resources, nested=nested)
            found.append(await diffs_of(side))
    assert found[0] == found[1]


def examples(count: int) -> settings:
    return settings(max_examples=count, deadline=None, suppress_health_check=[HealthCheck.too_slow])


contents = st.sampled_from([b"", b"x\n", b"x\ny\n", b"bin\0ary", b"no newline", b"\xff\xfe", b"z\n" * 500])
modes = st.sampled_from([0o644, 0o600, 0o755, 0o4755])
OWNED = {"owner": "OWNER", "group": "GROUP"}


@given(
    st.none() | st.tuples(contents, modes),
    st.sampled_from(["present", "absent", "directory"]),
    contents,
    st.sampled_from(["0644", "0600", "0755"]),
    st.booleans(),
    st.booleans(),
)
@examples(30)
async def test_file(
    before: tuple[bytes, int] | None, ensure: str, content: bytes, mode: str, diff: bool, nested: bool
) -> None:
    properties: dict[str, Any] = {"ensure": ensure, **OWNED, "mode": mode, "diff": diff}
    if ensure == "present":
        properties["content"] = content.decode("latin-1")
    there = {} if before is None else {"etc/app": before}

    await check(
        there | {"etc/other": (b"", 0o644)}, [{"file": [{"ROOT/etc/app": properties}]}], nested=nested
    )


names = st.sampled_from(["a", "b", "d/c"])


@given(
    st.dictionaries(names, st.sampled_from([b"x\n", b"[[ 1 + 1 ]]\n", b"y"]), min_size=1),
    st.dictionaries(names | st.just("old"), st.tuples(st.sampled_from([b"x\n", b"2\n", b"z\0"]), modes)),
    st.booleans(),
    st.sampled_from(["present", "absent"]),
    st.booleans(),
)
@examples(30)
async def test_scaffold(
    sources: dict[str, bytes], target: dict[str, tuple[bytes, int]], purge: bool, ensure: str, nested: bool
) -> None:
    before = {f"work/src/{path}": (text, 0o644) for path, text in sources.items()}
    before |= {f"out/{path}": found for path, found in target.items()}
    properties = {"ensure": ensure, "source": "src", "purge": purge, "engine": "jet"}

    await check(before, [{"scaffold": [{"ROOT/out": properties}]}], nested=nested)


@given(
    st.none() | st.tuples(st.sampled_from([ARCHIVE, b"another archive"]), st.sampled_from([0o644, 0o4755])),
    st.booleans(),
    st.sampled_from(["present", "absent"]),
    st.sampled_from(["", CHECKSUM]),
    st.booleans(),
    st.booleans(),
)
@examples(30)
async def test_archive(
    found: tuple[bytes, int] | None, unpacked: bool, ensure: str, checksum: str, cleanup: bool, nested: bool
) -> None:
    before = {"opt/other": (b"", 0o644)} | ({} if found is None else {"opt/app.tar.gz": found})
    if unpacked:
        before["opt/app"] = (b"made", 0o644)
    properties = {
        "ensure": ensure, "url": URL, "checksum": checksum, "extract_parent": "ROOT/opt", "creates": "ROOT/opt/app",
        "cleanup": cleanup, **OWNED,
    }  # fmt: skip

    await check(before, [{"archive": [{"ROOT/opt/app.tar.gz": properties}]}], nested=nested)


@pytest.mark.parametrize("nested", [False, True])
async def test_resources_that_build_on_each_other(nested: bool) -> None:
    resources = [
        {"file": [{"ROOT/etc": {"ensure": "directory", **OWNED, "mode": "0755"}}]},
        {"file": [{"ROOT/etc/app": {"ensure": "present", "content": "new\n", **OWNED, "mode": "0644"}}]},
        {"scaffold": [{"ROOT/out": {"ensure": "present", "source": "src", "engine": "jet"}}]},
    ]

    await check({"work/src/a": (b"x\n", 0o644)}, resources, nested=nested)
