"""A plan and the apply after it show the same diff, for every type."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ccm_agent.engine.diffs import WITHHELD, RunDiffs
from ccm_agent.model.outcome import TransactionEvent
from ccm_agent.model.resource import CommonProperties
from ccm_agent.model.resource_diff import RUN_LIMIT_BYTES, ContentInfo, FileDiff, PropertyChange, ResourceDiff
from ccm_agent.model.secret import Masker
from ccm_agent.resources import archive, exec, file, package, scaffold, service
from ccm_agent.resources.archive.model import ArchiveMetadata, ArchiveProperties, ArchiveState
from ccm_agent.resources.contract import AnyType
from ccm_agent.resources.exec.model import ExecProperties, ExecState, Execution
from ccm_agent.resources.file.model import FileProperties
from ccm_agent.resources.file.providers.posix import PosixFile
from ccm_agent.resources.package.model import PackageMetadata, PackageProperties, PackageState
from ccm_agent.resources.scaffold.providers.choria import Choria
from ccm_agent.resources.service.model import ServiceMetadata, ServiceProperties, ServiceState
from ccm_agent.testing.files import FakeFiles
from tests.support.resources import manage
from tests.support.scaffold import Host, wish

SHA = "a" * 64


async def both(
    kind: AnyType, make: Any, wanted: CommonProperties, **options: Any
) -> tuple[TransactionEvent, TransactionEvent]:
    """The events of a plan and of the apply after it, each with a provider that has seen nothing before."""
    events = []
    for noop in (True, False):
        diffs = RunDiffs(Masker(["secret-word"]), is_wanted=True)
        events.append(await manage(kind, make(), copy.deepcopy(wanted), noop=noop, diffs=diffs, **options))
    return events[0], events[1]


def check_equal(noop: TransactionEvent, real: TransactionEvent) -> None:
    if real.failed:
        return  # what only a change finds out, such as a missing directory, a plan cannot know
    assert noop.diff == real.diff
    assert (noop.diff is not None) is noop.changed


contents = st.sampled_from([None, "", "x\n", "x\ny\n", "password=secret-word\n", "bin\0ary", "no newline"])


@st.composite
def files_and_wishes(draw: st.DrawFn) -> tuple[FakeFiles, FileProperties]:
    files = FakeFiles()
    if (content := draw(contents)) is not None:
        files.put(
            "/d/a", content, mode=draw(st.sampled_from([0o600, 0o644])), uid=draw(st.sampled_from([0, 1]))
        )
    files.put("/source", draw(contents) or "")
    ensure = draw(st.sampled_from(["present", "absent", "directory"]))
    managed: dict[str, Any] = draw(st.sampled_from([{}, {"content": "new\n"}, {"source": "/source"}]))
    wanted = FileProperties(
        name=draw(st.sampled_from(["/d/a", "/b"])),
        ensure=ensure,
        owner=draw(st.sampled_from(["root", "daemon", "*"])),
        group="root",
        mode=draw(st.sampled_from(["0644", "0600", "xx4"])),
        diff=draw(st.booleans()),
        **(managed if ensure == "present" else {}),
    )
    return files, wanted


@given(files_and_wishes())
@settings(max_examples=300)
async def test_file(place: tuple[FakeFiles, FileProperties]) -> None:
    files, wanted = place
    check_equal(*await both(file.TYPE, lambda: PosixFile(files, "/"), wanted))


@given(
    st.dictionaries(
        st.sampled_from(["a", "b", "d/c"]), st.sampled_from(["x\n", "[[ name ]]\n", "y"]), min_size=1
    ),
    st.dictionaries(st.sampled_from(["a", "b", "d/c", "old"]), st.sampled_from(["x\n", "world\n", "z\0"])),
    st.booleans(),
    st.sampled_from(["present", "absent"]),
)
@settings(max_examples=100, deadline=None)
async def test_scaffold(sources: dict[str, str], target: dict[str, str], purge: bool, ensure: str) -> None:
    host = Host(sources)
    for path, text in target.items():
        host.put(path, text)

    check_equal(*await both(scaffold.TYPE, lambda: Choria(host), wish(purge=purge, ensure=ensure)))


class Packages:
    """A package manager that knows the versions 1 and 2 of one package."""

    def __init__(self, version: str) -> None:
        self.version = version

    async def status(self, wanted: PackageProperties) -> PackageState:
        metadata = PackageMetadata(name=wanted.name, version=self.version, provider="apt")
        return PackageState(
            protocol="", type="package", name=wanted.name, ensure=self.version, metadata=metadata
        )

    async def install(self, name: str, version: str) -> None:
        self.version = "2" if version in ("present", "latest") else version

    upgrade = downgrade = install

    async def uninstall(self, name: str) -> None:
        self.version = "absent"


@given(st.sampled_from(["absent", "1", "2"]), st.sampled_from(["present", "absent", "latest", "1", "2"]))
async def test_package(version: str, ensure: str) -> None:
    if (version, ensure) == ("2", "latest"):
        return  # a plan cannot know that no newer version exists
    host = Packages(version)
    check_equal(*await both(package.TYPE, lambda: host, PackageProperties(name="nginx", ensure=ensure)))


class Services:
    """An init system with one service."""

    def __init__(self, *, running: bool, enabled: bool) -> None:
        self.running, self.enabled = running, enabled

    async def status(self, wanted: ServiceProperties) -> ServiceState:
        metadata = ServiceMetadata(
            name=wanted.name, provider="systemd", enabled=self.enabled, running=self.running
        )
        ensure = "running" if self.running else "stopped"
        return ServiceState(protocol="", type="service", name=wanted.name, ensure=ensure, metadata=metadata)

    async def start(self, name: str) -> None:
        self.running = True

    restart = start

    async def stop(self, name: str) -> None:
        self.running = False

    async def enable(self, name: str) -> None:
        self.enabled = True

    async def disable(self, name: str) -> None:
        self.enabled = False


@given(
    st.booleans(),
    st.booleans(),
    st.sampled_from(["running", "stopped"]),
    st.sampled_from([None, True, False]),
    st.booleans(),
)
async def test_service(
    running: bool, enabled: bool, ensure: str, enable: bool | None, triggered: bool
) -> None:
    host = Services(running=running, enabled=enabled)
    wanted = ServiceProperties(name="nginx", ensure=ensure, enable=enable, subscribe=["file#/a"])

    check_equal(*await both(service.TYPE, lambda: host, wanted, changed=["file#/a"] if triggered else []))


class Commands:
    """Runs commands that do nothing."""

    def __init__(self, *, is_made: bool) -> None:
        self.is_made = is_made

    async def status(self, wanted: ExecProperties) -> ExecState:
        return ExecState(
            protocol="", type="exec", name=wanted.name, ensure="present", creates_satisfied=self.is_made
        )

    async def execute(self, wanted: ExecProperties) -> Execution:
        return Execution(exitcode=0)


@given(st.booleans(), st.booleans(), st.booleans())
async def test_exec(is_made: bool, refreshonly: bool, triggered: bool) -> None:
    host = Commands(is_made=is_made)
    wanted = ExecProperties(
        name="reload",
        ensure="present",
        command="reload --key secret-word",
        refreshonly=refreshonly,
        subscribe=["file#/a"],
    )

    noop, real = await both(exec.TYPE, lambda: host, wanted, changed=["file#/a"] if triggered else [])

    check_equal(noop, real)
    if noop.diff is not None:
        assert noop.diff == ResourceDiff(command="reload --key ***", refresh="file#/a" if triggered else "")


class Archives:
    """Downloads and unpacks one archive in memory."""

    def __init__(self, *, exists: bool, unpacked: bool, checksum: str) -> None:
        self.exists, self.unpacked, self.checksum = exists, unpacked, checksum
        self.owner = "daemon"

    async def status(self, wanted: ArchiveProperties) -> ArchiveState:
        metadata = ArchiveMetadata(
            name=wanted.name,
            checksum=self.checksum if self.exists else "",
            archive_exists=self.exists,
            creates_exists=self.unpacked,
            owner=self.owner if self.exists else "",
            group="root" if self.exists else "",
            size=9 if self.exists else 0,
            provider="http",
        )
        ensure = "present" if self.exists else "absent"
        return ArchiveState(protocol="", type="archive", name=wanted.name, ensure=ensure, metadata=metadata)

    async def download(self, wanted: ArchiveProperties) -> None:
        self.exists, self.checksum, self.owner = True, SHA, "root"

    async def extract(self, wanted: ArchiveProperties) -> None:
        self.unpacked = True

    async def set_attributes(self, wanted: ArchiveProperties) -> None:
        self.owner = "root"

    async def remove(self, wanted: ArchiveProperties) -> None:
        self.exists = False


@given(
    st.booleans(),
    st.booleans(),
    st.sampled_from([SHA, "b" * 64]),
    st.sampled_from(["present", "absent"]),
    st.booleans(),
    st.sampled_from(["", SHA]),
)
async def test_archive(
    exists: bool, unpacked: bool, found: str, ensure: str, cleanup: bool, checksum: str
) -> None:
    host = Archives(exists=exists, unpacked=unpacked, checksum=found)
    wanted = ArchiveProperties(
        name="/opt/app.tar.gz",
        ensure=ensure,
        url="https://example.net/app.tar.gz",
        checksum=checksum,
        extract_parent="/opt",
        creates="/opt/app",
        cleanup=cleanup,
        owner="root",
        group="root",
    )

    check_equal(*await both(archive.TYPE, lambda: host, wanted))


# ---- what a diff says ----


async def plan_of(files: FakeFiles, diffs: RunDiffs, **more: Any) -> ResourceDiff | None:
    wanted = FileProperties(
        name="/etc/app",
        ensure="present",
        owner="root",
        group="root",
        **{"content": "new\n", "mode": "0644", **more},
    )
    return (await manage(file.TYPE, PosixFile(files, "/"), wanted, noop=True, diffs=diffs)).diff


def host_with(content: str, mode: int = 0o644) -> FakeFiles:
    files = FakeFiles()
    files.put("/etc/app", content, mode=mode)
    return files


async def test_a_file_shows_attributes_and_lines() -> None:
    diff = await plan_of(host_with("old\n", 0o664), RunDiffs(Masker(), is_wanted=True))

    assert diff == ResourceDiff(
        properties=[PropertyChange(property="mode", before="0664", after="0644")],
        files=[
            FileDiff(
                path="/etc/app",
                text="@@ -1 +1 @@\n-old\n+new\n",
                added=1,
                removed=1,
            )
        ],
    )


async def test_without_the_question_nothing_is_compared() -> None:
    files = host_with("old\n")

    assert await plan_of(files, RunDiffs(Masker(), is_wanted=False)) is None
    assert len(files.looked_at) == 1


async def test_files_withheld_by_the_policy_are_not_read() -> None:
    files = host_with("old\n")

    diff = await plan_of(files, RunDiffs(Masker(), is_wanted=True, is_withheld=True))

    assert diff == ResourceDiff(why=WITHHELD)
    assert len(files.looked_at) == 1


async def test_a_restricted_plan_never_shows_lines_of_a_private_file() -> None:
    diffs = RunDiffs(Masker(), is_wanted=True, is_restricted=True)

    diff = await plan_of(host_with("old\n", 0o600), diffs, diff=True)

    assert diff is not None
    assert diff.files[0].form == "lines"
    assert not diff.files[0].text


async def test_a_sensitive_property_is_masked_on_both_sides() -> None:
    diffs = RunDiffs(Masker(), is_wanted=True)
    change = PropertyChange(property="password", before="former", after="latter")

    assert diffs._property(archive.TYPE, change) == PropertyChange(
        property="password", before="***", after="***"
    )


async def test_a_run_with_very_much_text_shows_counts_at_last() -> None:
    diffs = RunDiffs(Masker(), is_wanted=True)
    line = "x" * 1000 + "\n"
    found = [await plan_of(host_with("old\n"), diffs, content=line * 60) for _ in range(20)]

    sizes = [len(diff.files[0].text) for diff in found if diff is not None]
    assert sum(sizes) <= RUN_LIMIT_BYTES
    assert sizes[0] > 60_000
    assert found[-1] is not None
    assert found[-1].files[0].why == "the diffs of this run are too large"


async def test_a_file_that_cannot_be_read_shows_why() -> None:
    files = host_with("old\n")
    files.put_symlink("/link", "etc")
    files.put("/etc/app", b"x" * (2 << 20))

    diff = await plan_of(files, RunDiffs(Masker(), is_wanted=True))

    assert diff is not None
    (only,) = diff.files
    assert (only.form, only.why) == ("digests", "contents larger than 1 MiB are not compared line by line")
    assert only.before == ContentInfo(size_bytes=2 << 20)
