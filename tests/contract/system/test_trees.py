"""What `Trees` promises, on the fake and on this host."""

from __future__ import annotations

import errno
from hashlib import sha256

import pytest

from ccm_agent.model.errors import FileError
from ccm_agent.model.ports import Digest, Tree, TreeComparison, TreeEntry, Trees
from ccm_agent.system.trees.trees import SystemTrees
from ccm_agent.testing.files import FakeFiles
from ccm_agent.testing.trees import FakeTrees
from tests.contract.system.conftest import Place

LIMIT = 1 << 20


@pytest.fixture
def trees(place: Place) -> Trees:
    return FakeTrees(place.files) if isinstance(place.files, FakeFiles) else SystemTrees()


def file(path: str, content: bytes = b"x", mode: int = 0o644) -> TreeEntry:
    return TreeEntry(path=path, content=content, mode=mode)


async def put(place: Place, *paths: str, content: bytes = b"x") -> None:
    for path in paths:
        parent = f"{place.path}/{path}".rpartition("/")[0]
        await place.files.set_attributes(parent, mode=0o755, directory=True)
        await place.files.write(f"{place.path}/{path}", content, mode=0o640)


async def read(place: Place, path: str) -> bytes:
    return await place.files.read(f"{place.path}/{path}", LIMIT)


async def kinds(place: Place, *paths: str) -> list[str]:
    looks = await place.files.inspect([f"{place.path}/{path}" for path in paths], follow=False)
    return [look.kind for look in looks]


class TestReading:
    async def test_entries_come_in_the_order_of_a_walk(self, place: Place, trees: Trees) -> None:
        await put(place, "t/b", "t/a.d/z", "t/a/y", "t/a/d/x", "t/B")

        tree = await trees.read(f"{place.path}/t", LIMIT)

        assert (tree.kind, [(entry.path, entry.kind) for entry in tree.entries]) == (
            "directory",
            [
                ("B", "file"),
                ("a", "directory"),
                ("a/d", "directory"),
                ("a/d/x", "file"),
                ("a/y", "file"),
                ("a.d", "directory"),
                ("a.d/z", "file"),
                ("b", "file"),
            ],
        )

    async def test_a_file_comes_with_content_and_mode(self, place: Place, trees: Trees) -> None:
        await put(place, "t/a", content=b"hello")

        (entry,) = (await trees.read(f"{place.path}/t", LIMIT)).entries

        assert (entry.content, entry.mode, entry.uid >= 0, entry.gid >= 0) == (b"hello", 0o640, True, True)

    async def test_a_symlink_to_a_file_has_its_content_and_one_to_a_directory_is_not_entered(
        self, place: Place, trees: Trees
    ) -> None:
        await put(place, "real/a", "t/b", content=b"hello")
        place.symlink(f"{place.path}/t/file", "../real/a")
        place.symlink(f"{place.path}/t/directory", "../real")
        place.symlink(f"{place.path}/t/nowhere", "gone")

        tree = await trees.read(f"{place.path}/t", LIMIT)

        assert [(entry.path, entry.kind, entry.content) for entry in tree.entries] == [
            ("b", "file", b"hello"),
            ("directory", "symlink", b""),
            ("file", "symlink", b"hello"),
            ("nowhere", "symlink", b""),
        ]

    async def test_a_fifo_is_something_else_and_is_not_waited_for(self, place: Place, trees: Trees) -> None:
        await put(place, "t/b")
        place.fifo(f"{place.path}/t/a")

        tree = await trees.read(f"{place.path}/t", LIMIT)

        assert [(entry.path, entry.kind) for entry in tree.entries] == [("a", "other"), ("b", "file")]

    async def test_a_path_that_is_not_a_directory_has_no_entries(self, place: Place, trees: Trees) -> None:
        await put(place, "a", "d/b")
        place.symlink(f"{place.path}/l", "d")

        assert await trees.read(f"{place.path}/a", LIMIT) == Tree(kind="file")
        assert await trees.read(f"{place.path}/l", LIMIT) == Tree(kind="symlink")

    async def test_nothing_there_is_an_error(self, place: Place, trees: Trees) -> None:
        with pytest.raises(FileError) as caught:
            await trees.read(f"{place.path}/t", LIMIT)

        assert caught.value.errno == errno.ENOENT

    async def test_more_than_the_limit_is_an_error(self, place: Place, trees: Trees) -> None:
        await put(place, "t/a", "t/b", content=b"12345")

        with pytest.raises(FileError, match="which is the limit here"):
            await trees.read(f"{place.path}/t", 9)
        assert len((await trees.read(f"{place.path}/t", 10)).entries) == 2


class TestComparing:
    async def test_files_are_the_same_or_differ_or_are_absent(self, place: Place, trees: Trees) -> None:
        await put(
            place, "t/same", "t/d/other", "t/longer", "t/by-digest", "t/by-other-digest", content=b"one\n"
        )

        look = await trees.compare(
            f"{place.path}/t",
            {
                "same": b"one\n",
                "d/other": b"two\n",
                "longer": b"one\ntwo\n",
                "by-digest": Digest(sha256(b"one\n").hexdigest()),
                "by-other-digest": Digest(sha256(b"two\n").hexdigest()),
                "gone": b"one\n",
                "no/where": b"",
            },
        )

        assert look == TreeComparison(
            exists=True,
            files={
                "same": "same",
                "d/other": "differs",
                "longer": "differs",
                "by-digest": "same",
                "by-other-digest": "differs",
                "gone": "absent",
                "no/where": "absent",
            },
        )

    async def test_existing_content_besides_is_named_but_for_directories(
        self, place: Place, trees: Trees
    ) -> None:
        await put(place, "t/a", "t/d/b", "t/.hidden", "t/full/c", "real/f")
        place.symlink(f"{place.path}/t/link", "../real")
        place.symlink(f"{place.path}/t/nowhere", "gone")
        place.fifo(f"{place.path}/t/fifo")

        look = await trees.compare(f"{place.path}/t", {"a": b"x", "d/b": b"x"})

        assert look.extra == (".hidden", "fifo", "full/c", "link", "nowhere")

    async def test_where_nothing_is_all_is_absent(self, place: Place, trees: Trees) -> None:
        place.symlink(f"{place.path}/l", "gone")

        for name in ("t", "l"):
            look = await trees.compare(f"{place.path}/{name}", {"a": b""})

            assert look == TreeComparison(exists=False, files={"a": "absent"})

    async def test_a_symlink_to_a_file_is_followed(self, place: Place, trees: Trees) -> None:
        await put(place, "real", "t/other")
        place.symlink(f"{place.path}/t/a", "../real")
        place.symlink(f"{place.path}/t/nowhere", "gone")

        look = await trees.compare(f"{place.path}/t", {"a": b"x", "nowhere": b"x", "other": b"x"})

        assert look == TreeComparison(exists=True, files={"a": "same", "nowhere": "differs", "other": "same"})

    async def test_a_symlink_to_a_directory_is_followed_unless_the_directory_is_to_be_whole(
        self, place: Place, trees: Trees
    ) -> None:
        await put(place, "real/a", "t/b")
        place.symlink(f"{place.path}/t/d", "../real")
        wanted = {"d/a": b"x", "b": b"x"}

        loose = await trees.compare(f"{place.path}/t", wanted)
        whole = await trees.compare(f"{place.path}/t", wanted, is_whole=True)

        assert loose == TreeComparison(exists=True, files={"d/a": "same", "b": "same"}, extra=("d",))
        assert whole == TreeComparison(exists=True, files={"d/a": "absent", "b": "same"}, extra=("d",))

    async def test_a_symlink_in_place_of_the_directory_is_not_followed(
        self, place: Place, trees: Trees
    ) -> None:
        await put(place, "real/a", "real/more")
        place.symlink(f"{place.path}/t", "real")

        for is_whole in (False, True):
            look = await trees.compare(f"{place.path}/t", {"a": b"x", "b": b"x"}, is_whole=is_whole)

            assert look == TreeComparison(exists=True, files={"a": "same", "b": "absent"}, extra=("",))

    @pytest.mark.parametrize("path", ["d", "fifo", "file/below"])
    async def test_something_else_in_a_files_place_is_an_error(
        self, place: Place, trees: Trees, path: str
    ) -> None:
        await put(place, "t/d/a", "t/file")
        place.fifo(f"{place.path}/t/fifo")

        with pytest.raises(FileError, match=path):
            await trees.compare(f"{place.path}/t", {path: b"x"})

    async def test_a_file_in_the_directorys_place_is_an_error(self, place: Place, trees: Trees) -> None:
        await put(place, "t")

        with pytest.raises(FileError) as caught:
            await trees.compare(f"{place.path}/t", {})

        assert caught.value.message == f"{place.path}/t: is not a directory, but must be one"


class TestWriting:
    async def test_directories_and_files_come_about(self, place: Place, trees: Trees) -> None:
        removed = await trees.write(
            f"{place.path}/a/b/t", ["d", "d/e", "empty"], [file("d/e/x", b"1"), file("y", b"2", 0o755)]
        )

        looks = await place.files.inspect(
            [f"{place.path}/a/b/{path}" for path in ("t", "t/d/e/x", "t/y", "t/empty")]
        )
        assert removed == ()
        assert [(look.kind, look.mode) for look in looks] == [
            ("directory", 0o755),
            ("file", 0o644),
            ("file", 0o755),
            ("directory", 0o755),
        ]
        assert (await read(place, "a/b/t/d/e/x"), await read(place, "a/b/t/y")) == (b"1", b"2")

    async def test_a_directory_that_exists_keeps_its_mode_and_its_content(
        self, place: Place, trees: Trees
    ) -> None:
        await put(place, "t/d/mine")
        await place.files.set_attributes(f"{place.path}/t/d", mode=0o700, directory=True)

        await trees.write(f"{place.path}/t", ["d"], [file("d/x")])

        (look,) = await place.files.inspect([f"{place.path}/t/d"])
        assert (look.mode, place.names(f"{place.path}/t/d")) == (0o700, ["mine", "x"])

    async def test_a_symlink_in_place_of_a_file_is_replaced_and_its_target_stays(
        self, place: Place, trees: Trees
    ) -> None:
        await put(place, "real", content=b"mine")
        await put(place, "t/other")
        place.symlink(f"{place.path}/t/a", "../real")

        await trees.write(f"{place.path}/t", [], [file("a", b"new")])

        assert (await kinds(place, "t/a"), await read(place, "t/a"), await read(place, "real")) == (
            ["file"],
            b"new",
            b"mine",
        )

    async def test_a_symlink_in_a_directorys_place_is_followed(self, place: Place, trees: Trees) -> None:
        await put(place, "real/mine", "t/b")
        place.symlink(f"{place.path}/t/d", "../real")

        await trees.write(f"{place.path}/t", ["d"], [file("d/x")])

        assert (await kinds(place, "t/d"), place.names(f"{place.path}/real")) == (["symlink"], ["mine", "x"])

    async def test_the_directory_itself_may_be_a_symlink(self, place: Place, trees: Trees) -> None:
        await put(place, "real/mine")
        place.symlink(f"{place.path}/t", "real")

        removed = await trees.write(f"{place.path}/t", ["d"], [file("d/x")], keep=[])

        assert (removed, place.names(f"{place.path}/real"), await kinds(place, "t")) == (
            (),
            ["d", "mine"],
            ["symlink"],
        )

    async def test_purge_removes_everything_else_but_directories(self, place: Place, trees: Trees) -> None:
        await put(place, "t/kept", "t/extra", "t/d/extra", "t/.dot", "t/own/deep/x", "real/f")
        place.symlink(f"{place.path}/t/link", "../real")
        place.fifo(f"{place.path}/t/fifo")

        removed = await trees.write(f"{place.path}/t", ["d"], [file("d/x")], keep=["kept"])

        assert sorted(removed) == [".dot", "d/extra", "extra", "fifo", "link", "own/deep/x"]
        assert place.names(f"{place.path}/t") == ["d", "kept", "own"]
        assert (place.names(f"{place.path}/t/own/deep"), place.names(f"{place.path}/real")) == ([], ["f"])

    async def test_purge_replaces_a_symlink_by_a_directory(self, place: Place, trees: Trees) -> None:
        await put(place, "real/mine", "t/b")
        place.symlink(f"{place.path}/t/d", "../real")

        removed = await trees.write(f"{place.path}/t", ["d"], [file("d/x")], keep=["b"])

        assert (removed, await kinds(place, "t/d"), place.names(f"{place.path}/real")) == (
            ("d",),
            ["directory"],
            ["mine"],
        )

    async def test_a_file_in_a_directorys_place_is_an_error(self, place: Place, trees: Trees) -> None:
        await put(place, "t/d")

        with pytest.raises(FileError, match="is not a directory, but must be one"):
            await trees.write(f"{place.path}/t", ["d"], [])

    async def test_a_directory_in_a_files_place_is_an_error(self, place: Place, trees: Trees) -> None:
        await put(place, "t/d/a")

        with pytest.raises(FileError, match="this is a directory, not a file"):
            await trees.write(f"{place.path}/t", [], [file("d")])


class TestRemoving:
    async def test_directories_that_become_empty_are_removed_with_their_files(
        self, place: Place, trees: Trees
    ) -> None:
        await put(place, "t/a", "t/d/e/f")

        await trees.remove(f"{place.path}/t", ["a", "d/e/f"])

        assert await kinds(place, "t") == ["absent"]

    async def test_a_directory_with_other_content_stays(self, place: Place, trees: Trees) -> None:
        await put(place, "t/a", "t/d/b", "t/d/mine", "t/e/c")
        await place.files.set_attributes(f"{place.path}/t/empty", mode=0o755, directory=True)

        await trees.remove(f"{place.path}/t", ["a", "d/b", "e/c"])

        assert (place.names(f"{place.path}/t"), place.names(f"{place.path}/t/d")) == (
            ["d", "empty"],
            ["mine"],
        )

    async def test_nothing_there_is_fine(self, place: Place, trees: Trees) -> None:
        await trees.remove(f"{place.path}/t", ["a", "d/b"])

        assert await kinds(place, "t") == ["absent"]

    async def test_a_symlink_to_a_directory_stays_and_the_file_behind_it_is_removed(
        self, place: Place, trees: Trees
    ) -> None:
        await put(place, "real/a", "t/b")
        place.symlink(f"{place.path}/t/d", "../real")

        await trees.remove(f"{place.path}/t", ["b", "d/a"])

        assert (place.names(f"{place.path}/t"), place.names(f"{place.path}/real")) == (["d"], [])
