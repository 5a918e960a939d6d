from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import msgspec
import pytest

from ccm_agent.model.errors import FileError
from ccm_agent.resources.file.model import FileMetadata, FileProperties, FileState, SourceFile
from ccm_agent.resources.file.providers.posix import PosixFile
from ccm_agent.testing.files import FakeFiles

PROTOCOL = "io.choria.ccm.v1.resource.file.state"
FIRST = datetime(2026, 1, 1, 12, 0, 1, tzinfo=UTC)


@pytest.fixture
def files() -> FakeFiles:
    return FakeFiles()


@pytest.fixture
def posix(files: FakeFiles) -> PosixFile:
    return PosixFile(files, "/site")


def wanted(name: str = "/a", ensure: str = "present", **properties: Any) -> FileProperties:
    return FileProperties(
        name=name, ensure=ensure, **({"owner": "root", "group": "root", "mode": "0644"} | properties)
    )


def state(ensure: str, metadata: FileMetadata, source: Any = msgspec.UNSET) -> FileState:
    return FileState(
        protocol=PROTOCOL, type="file", name=metadata.name, ensure=ensure, metadata=metadata, source=source
    )


class TestStatus:
    async def test_of_a_file_all_is_reported(self, files: FakeFiles, posix: PosixFile) -> None:
        files.put("/a", "hello", mode=0o4750, uid=1, gid=54321)

        assert await posix.status(wanted()) == state(
            "present",
            FileMetadata(
                name="/a",
                owner="daemon",
                group="54321",
                mode="0750",
                checksum=sha256(b"hello").hexdigest(),
                provider="posix",
                mtime=FIRST,
                size=5,
                uid=1,
                gid=54321,
            ),
        )

    async def test_of_nothing_only_the_name_is_reported(self, posix: PosixFile) -> None:
        assert await posix.status(wanted()) == state(
            "absent", FileMetadata(name="/a", owner="", group="", mode="", provider="posix")
        )

    async def test_a_state_is_written_as_choria_ccm_writes_it(self, posix: PosixFile) -> None:
        found = await posix.status(wanted())

        assert msgspec.to_builtins(found)["metadata"] == {
            "name": "/a",
            "owner": "",
            "group": "",
            "mode": "",
            "provider": "posix",
        }

    async def test_a_directory_has_no_checksum(self, files: FakeFiles, posix: PosixFile) -> None:
        files.put_directory("/a", mode=0o750)

        found = await posix.status(wanted())

        assert (found.ensure, found.metadata.mode, found.metadata.checksum) == ("directory", "0750", "")

    async def test_a_symlink_is_looked_through_and_named(self, files: FakeFiles, posix: PosixFile) -> None:
        files.put("/real", "x", mode=0o600)
        files.put_symlink("/a", "real")

        found = await posix.status(wanted())

        assert (found.ensure, found.metadata.mode, found.metadata.link) == ("present", "0600", "real")

    async def test_a_dangling_symlink_is_absent_and_named(self, files: FakeFiles, posix: PosixFile) -> None:
        files.put_symlink("/a", "nowhere")

        found = await posix.status(wanted())

        assert (found.ensure, found.metadata.link) == ("absent", "nowhere")

    @pytest.mark.parametrize("name", ["/loop", "/file/below"])
    async def test_a_path_that_cannot_be_inspected_counts_as_present(
        self, files: FakeFiles, posix: PosixFile, name: str
    ) -> None:
        files.put("/file")
        files.put_symlink("/loop", "loop")

        found = await posix.status(wanted(name))

        assert (found.ensure, found.metadata.mode, bool(found.metadata.error)) == ("present", "", True)

    @pytest.mark.parametrize("ensure", ["present", "absent", "directory"])
    async def test_a_fifo_is_an_error(self, files: FakeFiles, posix: PosixFile, ensure: str) -> None:
        files.put_fifo("/a")

        with pytest.raises(FileError) as caught:
            await posix.status(wanted(ensure=ensure))

        assert caught.value.message == (
            "/a is a FIFO, socket or device; only files, directories and symlinks to them can be managed"
        )

    async def test_another_name_of_the_owner_is_the_owner(self, files: FakeFiles, posix: PosixFile) -> None:
        files.users["toor"] = files.groups["wheel"] = 0
        files.put("/a")

        found = await posix.status(wanted(owner="toor", group="wheel"))

        assert (found.metadata.owner, found.metadata.group) == ("toor", "wheel")

    async def test_a_number_is_not_taken_for_a_name(self, files: FakeFiles, posix: PosixFile) -> None:
        files.put("/a")

        found = await posix.status(wanted(owner="0", group="0"))

        assert (found.metadata.owner, found.metadata.group) == ("root", "root")

    async def test_an_unknown_owner_is_for_the_change_to_complain_about(
        self, files: FakeFiles, posix: PosixFile
    ) -> None:
        files.put("/a")

        found = await posix.status(wanted(owner="no-such-user"))

        assert found.metadata.owner == "root"


class TestSources:
    @pytest.mark.parametrize("source", ["src", "/site/src"])
    async def test_a_relative_one_begins_where_the_manifest_is(
        self, files: FakeFiles, posix: PosixFile, source: str
    ) -> None:
        files.put("/site/src", "x")

        found = await posix.status(wanted(source=source))

        assert found.source == SourceFile(path="/site/src", checksum=sha256(b"x").hexdigest(), size=1)

    @pytest.mark.parametrize(
        ("source", "error"),
        [
            pytest.param("nowhere", "there is no such file", id="missing"),
            pytest.param("dangling", "there is no such file", id="a dangling symlink"),
            pytest.param("d", "this is a directory, not a file", id="a directory"),
            pytest.param("fifo", "this is a FIFO, socket or device, not a file", id="a FIFO"),
        ],
    )
    async def test_an_unusable_creates_path_reports_why(
        self, files: FakeFiles, posix: PosixFile, source: str, error: str
    ) -> None:
        files.put_directory("/site/d")
        files.put_fifo("/site/fifo")
        files.put_symlink("/site/dangling", "nowhere")

        found = await posix.status(wanted(source=source))

        assert found.source == SourceFile(path=f"/site/{source}", error=error)

    async def test_unneeded_guards_do_not_run(self, files: FakeFiles, posix: PosixFile) -> None:
        found = await posix.status(wanted(ensure="absent", source="src"))

        assert found.source is msgspec.UNSET
        assert files.looked_at == [("/a",)]


class TestLookingAhead:
    async def test_many_are_looked_at_in_one_go(self, files: FakeFiles, posix: PosixFile) -> None:
        files.put("/b", "x")
        files.put("/site/src", "y")
        many = [wanted("/a"), wanted("/b"), wanted("/c", source="src")]

        found = await posix.look_ahead(many)

        assert found == [await posix.status(one) for one in many]
        assert files.looked_at[0] == ("/a", "/b", "/c", "/site/src")

    async def test_errors_are_left_to_status(self, files: FakeFiles, posix: PosixFile) -> None:
        files.put_fifo("/a")

        assert await posix.look_ahead([wanted("/a")]) == [None]


class TestVerbs:
    async def test_content_is_stored(self, files: FakeFiles, posix: PosixFile) -> None:
        await posix.store(wanted(content="grüß\n", owner="daemon", group="54321", mode="640"))

        node = files.nodes["/a"]
        assert (node.content, node.uid, node.gid, node.mode) == ("grüß\n".encode(), 1, 54321, 0o640)

    async def test_a_source_is_copied(self, files: FakeFiles, posix: PosixFile) -> None:
        files.put("/site/src", b"\x00\xff")

        await posix.store(wanted(source="src"))

        assert files.nodes["/a"].content == b"\x00\xff"

    @pytest.mark.parametrize("given", [{"content": "x"}, {"source": "src"}, {"owner": "daemon"}])
    async def test_the_state_is_read_with_the_change(
        self, files: FakeFiles, posix: PosixFile, given: dict[str, str]
    ) -> None:
        files.put("/site/src", "y")

        state = await posix.store(wanted(**given))

        assert len(files.looked_at) == 1
        assert state == await posix.status(wanted(**given))

    async def test_without_content_an_empty_file_is_made(self, files: FakeFiles, posix: PosixFile) -> None:
        await posix.store(wanted())

        assert files.nodes["/a"].content == b""

    async def test_attributes_are_set(self, files: FakeFiles, posix: PosixFile) -> None:
        files.put("/a", "kept", mode=0o600)

        await posix.set_attributes(wanted(owner="daemon"))

        node = files.nodes["/a"]
        assert (node.content, node.uid, node.mode) == (b"kept", 1, 0o644)

    async def test_a_directory_is_made_that_may_be_entered(self, files: FakeFiles, posix: PosixFile) -> None:
        await posix.create_directory(wanted("/a/b", "directory"))

        assert {path: node.mode for path, node in files.nodes.items() if path != "/"} == {
            "/a": 0o755,
            "/a/b": 0o755,
        }

    async def test_a_file_is_removed(self, files: FakeFiles, posix: PosixFile) -> None:
        files.put("/a")

        await posix.remove(wanted(ensure="absent"))

        assert list(files.nodes) == ["/"]

    async def test_a_full_directory_is_removed_only_by_force(
        self, files: FakeFiles, posix: PosixFile
    ) -> None:
        files.put("/a/b")

        with pytest.raises(FileError) as caught:
            await posix.remove(wanted(ensure="absent"))
        assert caught.value.message == (
            "cannot remove /a: the directory is not empty, set `force: true` to remove it with its content"
        )

        await posix.remove(wanted(ensure="absent", force=True))
        assert list(files.nodes) == ["/"]
