"""What `Files` promises, on the fake and on this host."""

from __future__ import annotations

import errno
import hashlib
import os

import pytest

from ccm_agent.model.errors import FileError
from ccm_agent.model.ports import ContentRef, DigestLimits, FileInfo
from tests.contract.system.conftest import Place

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


async def look(place: Place, name: str, *, digest: bool = True, follow: bool = True) -> FileInfo:
    return (await place.files.inspect([f"{place.path}/{name}"], digest=digest, follow=follow))[0]


async def read(place: Place, name: str) -> bytes:
    return await place.files.read(f"{place.path}/{name}", 1 << 20)


async def put(place: Place, name: str, kind: str) -> None:
    if kind == "file":
        await place.files.write(f"{place.path}/{name}", b"x", mode=0o644)
    else:
        await place.files.set_attributes(f"{place.path}/{name}", mode=0o755, directory=True)


class TestLooking:
    async def test_a_file_is_reported_with_size_mode_and_digest(self, place: Place) -> None:
        await place.files.write(f"{place.path}/a", b"hello", mode=0o640)

        seen = await look(place, "a")

        assert (seen.kind, seen.mode, seen.size_bytes) == ("file", 0o640, 5)
        assert seen.sha256 == hashlib.sha256(b"hello").hexdigest()
        assert (seen.link, seen.error, seen.is_empty) == ("", "", False)
        assert seen.mtime_ns > 0

    async def test_answers_come_in_the_order_asked(self, place: Place) -> None:
        await place.files.write(f"{place.path}/b", b"", mode=0o644)
        paths = [f"{place.path}/{name}" for name in ("c", "b", "a")]

        seen = await place.files.inspect(paths)

        assert [(one.path, one.kind) for one in seen] == [
            (paths[0], "absent"),
            (paths[1], "file"),
            (paths[2], "absent"),
        ]

    async def test_an_absent_path_has_no_other_attributes(self, place: Place) -> None:
        assert await look(place, "a") == FileInfo(path=f"{place.path}/a")

    async def test_no_digest_is_made_unless_asked_for(self, place: Place) -> None:
        await place.files.write(f"{place.path}/a", b"hello", mode=0o640)

        assert (await look(place, "a", digest=False)).sha256 == ""

    async def test_a_directory_reports_whether_it_is_empty(self, place: Place) -> None:
        await place.files.set_attributes(f"{place.path}/d", mode=0o755, directory=True)
        empty = await look(place, "d")
        await place.files.write(f"{place.path}/d/a", b"", mode=0o644)
        full = await look(place, "d")

        assert (empty.kind, empty.is_empty, full.is_empty) == ("directory", True, False)

    async def test_a_symlink_is_followed_and_named(self, place: Place) -> None:
        await place.files.write(f"{place.path}/a", b"hello", mode=0o600)
        place.symlink(f"{place.path}/l", "a")

        seen = await look(place, "l")

        assert (seen.kind, seen.mode, seen.link) == ("file", 0o600, "a")
        assert seen.sha256 == hashlib.sha256(b"hello").hexdigest()

    async def test_a_symlink_is_not_followed_unless_wanted(self, place: Place) -> None:
        place.symlink(f"{place.path}/l", "a")

        seen = await look(place, "l", follow=False)

        assert (seen.kind, seen.link, seen.sha256) == ("symlink", "a", "")

    async def test_a_symlink_to_nothing_is_absent_and_named(self, place: Place) -> None:
        place.symlink(f"{place.path}/l", "no/where")

        assert await look(place, "l") == FileInfo(path=f"{place.path}/l", link="no/where")

    async def test_a_loop_of_symlinks_is_unreadable(self, place: Place) -> None:
        place.symlink(f"{place.path}/l", "l")

        seen = await look(place, "l")

        assert (seen.kind, seen.link, bool(seen.error)) == ("unreadable", "l", True)

    async def test_a_path_below_a_file_is_unreadable(self, place: Place) -> None:
        await place.files.write(f"{place.path}/a", b"hello", mode=0o600)

        seen = await look(place, "a/b")

        assert (seen.kind, bool(seen.error)) == ("unreadable", True)

    async def test_a_fifo_is_something_else_and_is_not_waited_for(self, place: Place) -> None:
        place.fifo(f"{place.path}/f")

        seen = await look(place, "f")

        assert (seen.kind, seen.sha256) == ("other", "")


class TestReading:
    async def test_a_file_up_to_the_limit_is_read(self, place: Place) -> None:
        await place.files.write(f"{place.path}/a", b"12345", mode=0o600)

        assert await place.files.read(f"{place.path}/a", 5) == b"12345"

    async def test_more_than_the_limit_is_refused(self, place: Place) -> None:
        await place.files.write(f"{place.path}/a", b"12345", mode=0o600)

        with pytest.raises(FileError) as caught:
            await place.files.read(f"{place.path}/a", 4)

        assert caught.value.message == f"{place.path}/a: is larger than 4 bytes, which is the limit here"

    async def test_the_missing_part_is_said(self, place: Place) -> None:
        with pytest.raises(FileError) as caught:
            await read(place, "a")

        assert (caught.value.message, caught.value.errno) == (
            f"{place.path}/a: cannot be read: No such file or directory",
            errno.ENOENT,
        )

    async def test_a_fifo_is_refused_at_once(self, place: Place) -> None:
        place.fifo(f"{place.path}/f")

        with pytest.raises(FileError) as caught:
            await read(place, "f")

        assert caught.value.message == f"{place.path}/f: this is a FIFO, not a file"

    async def test_a_directory_is_refused(self, place: Place) -> None:
        await place.files.set_attributes(f"{place.path}/d", mode=0o755, directory=True)

        with pytest.raises(FileError) as caught:
            await read(place, "d")

        assert caught.value.message == f"{place.path}/d: this is a directory, not a file"


class TestStoring:
    async def test_a_new_file_has_content_and_mode_whatever_the_umask(self, place: Place) -> None:
        await place.files.write(f"{place.path}/a", b"\x00\xff", mode=0o666)

        assert (await look(place, "a")).mode == 0o666
        assert await read(place, "a") == b"\x00\xff"
        assert place.names(place.path) == ["a"]

    async def test_a_file_is_replaced_with_another_mode(self, place: Place) -> None:
        await place.files.write(f"{place.path}/a", b"old and longer", mode=0o600)

        await place.files.write(f"{place.path}/a", b"new", mode=0o755)

        assert (await look(place, "a")).mode == 0o755
        assert await read(place, "a") == b"new"
        assert place.names(place.path) == ["a"]

    async def test_a_copy_is_made_of_another_file(self, place: Place) -> None:
        content = bytes(range(256)) * 20_000
        await place.files.write(f"{place.path}/a", content, mode=0o600)

        await place.files.write(f"{place.path}/b", ContentRef(f"{place.path}/a"), mode=0o644)

        assert await place.files.read(f"{place.path}/b", len(content)) == content

    async def test_a_copy_of_itself_leaves_the_content(self, place: Place) -> None:
        await place.files.write(f"{place.path}/a", b"text", mode=0o600)

        await place.files.write(f"{place.path}/a", ContentRef(f"{place.path}/a"), mode=0o644)

        assert await read(place, "a") == b"text"

    async def test_paths_are_inspected_after_the_change(self, place: Place) -> None:
        await place.files.write(f"{place.path}/b", b"old", mode=0o600)
        paths: DigestLimits = {f"{place.path}/b": [3], f"{place.path}/none": [3]}

        seen = await place.files.write(f"{place.path}/b", b"new", mode=0o640, then_inspect=paths)

        assert seen == await place.files.inspect(list(paths), digest=paths)
        assert [(one.kind, one.sha256) for one in seen] == [
            ("file", hashlib.sha256(b"new").hexdigest()),
            ("absent", ""),
        ]

    async def test_a_copy_of_nothing_writes_nothing(self, place: Place) -> None:
        with pytest.raises(FileError) as caught:
            await place.files.write(f"{place.path}/b", ContentRef(f"{place.path}/a"), mode=0o644)

        assert caught.value.message == f"{place.path}/a: cannot be read: No such file or directory"
        assert place.names(place.path) == []

    async def test_a_copy_of_a_fifo_is_refused(self, place: Place) -> None:
        place.fifo(f"{place.path}/f")

        with pytest.raises(FileError) as caught:
            await place.files.write(f"{place.path}/b", ContentRef(f"{place.path}/f"), mode=0o644)

        assert caught.value.message == f"{place.path}/f: this is a FIFO, not a file"
        assert place.names(place.path) == ["f"]

    async def test_a_symlink_is_replaced_and_its_target_stays(self, place: Place) -> None:
        await place.files.write(f"{place.path}/real", b"old", mode=0o600)
        place.symlink(f"{place.path}/a", "real")

        await place.files.write(f"{place.path}/a", b"new", mode=0o644)

        assert (await look(place, "a")).link == ""
        assert (await read(place, "a"), await read(place, "real")) == (b"new", b"old")

    async def test_a_directory_above_it_may_be_a_symlink(self, place: Place) -> None:
        await place.files.set_attributes(f"{place.path}/real", mode=0o755, directory=True)
        place.symlink(f"{place.path}/d", "real")

        await place.files.write(f"{place.path}/d/a", b"x", mode=0o644)

        assert await read(place, "real/a") == b"x"

    async def test_without_a_directory_it_fails(self, place: Place) -> None:
        with pytest.raises(FileError) as caught:
            await place.files.write(f"{place.path}/no/a", b"x", mode=0o644)

        assert (caught.value.message, caught.value.errno) == (
            f"{place.path}/no/a: there is no directory {place.path}/no",
            errno.ENOENT,
        )

    async def test_below_a_file_it_fails(self, place: Place) -> None:
        await place.files.write(f"{place.path}/f", b"x", mode=0o644)

        with pytest.raises(FileError) as caught:
            await place.files.write(f"{place.path}/f/a", b"x", mode=0o644)

        assert (caught.value.message, caught.value.errno) == (
            f"{place.path}/f/a: {place.path}/f is not a directory",
            errno.ENOTDIR,
        )

    @pytest.mark.parametrize("kind", ["directory", "FIFO"])
    async def test_a_path_that_is_not_a_file_is_not_replaced(self, place: Place, kind: str) -> None:
        if kind == "FIFO":
            place.fifo(f"{place.path}/a")
        else:
            await place.files.set_attributes(f"{place.path}/a", mode=0o755, directory=True)

        with pytest.raises(FileError) as caught:
            await place.files.write(f"{place.path}/a", b"x", mode=0o644)

        assert caught.value.message == f"{place.path}/a: this is a {kind}, not a file"
        assert place.names(place.path) == ["a"]

    async def test_an_unknown_user_is_reported_before_anything_is_written(self, place: Place) -> None:
        with pytest.raises(FileError) as caught:
            await place.files.write(f"{place.path}/a", b"x", owner="no-such-user", mode=0o644)

        assert caught.value.message == "there is no user 'no-such-user' on this machine"
        assert place.names(place.path) == []

    async def test_an_unknown_group_is_reported_before_anything_is_written(self, place: Place) -> None:
        with pytest.raises(FileError) as caught:
            await place.files.write(f"{place.path}/a", b"x", group="no-such-group", mode=0o644)

        assert caught.value.message == "there is no group 'no-such-group' on this machine"
        assert place.names(place.path) == []

    @needs_root
    async def test_numbers_own_a_file_that_the_system_has_no_names_for(self, place: Place) -> None:
        await place.files.write(f"{place.path}/a", b"x", owner="54321", group="0054322", mode=0o644)

        seen = await look(place, "a")

        assert (seen.uid, seen.gid, seen.owner, seen.group) == (54321, 54322, "54321", "54322")

    @needs_root
    async def test_names_own_a_file(self, place: Place) -> None:
        await place.files.write(f"{place.path}/a", b"x", owner="daemon", group="root", mode=0o644)

        seen = await look(place, "a")

        assert (seen.owner, seen.group, seen.uid, seen.gid) == ("daemon", "root", 1, 0)


class TestAdopting:
    async def test_a_staged_file_takes_the_place_of_another(self, place: Place) -> None:
        await place.files.write(f"{place.path}/a", b"old", mode=0o600)
        await place.files.write(f"{place.path}/.staged", b"new", mode=0o600)

        await place.files.replace(f"{place.path}/.staged", f"{place.path}/a", mode=0o644)

        assert (await look(place, "a")).mode == 0o644
        assert await read(place, "a") == b"new"
        assert place.names(place.path) == ["a"]

    async def test_a_file_from_elsewhere_is_refused(self, place: Place) -> None:
        await place.files.set_attributes(f"{place.path}/d", mode=0o755, directory=True)
        await place.files.write(f"{place.path}/d/a", b"new", mode=0o600)

        with pytest.raises(FileError) as caught:
            await place.files.replace(f"{place.path}/d/a", f"{place.path}/a", mode=0o644)

        assert caught.value.message == (
            f"{place.path}/d/a: is not in the same directory as {place.path}/a, so it cannot replace it atomically"
        )
        assert place.names(place.path) == ["d"]


class TestAttributes:
    async def test_the_mode_of_a_file_changes_and_its_content_stays(self, place: Place) -> None:
        await place.files.write(f"{place.path}/a", b"kept", mode=0o600)

        await place.files.set_attributes(f"{place.path}/a", mode=0o444)

        assert (await look(place, "a")).mode == 0o444
        assert await read(place, "a") == b"kept"

    @needs_root
    async def test_a_file_is_given_away(self, place: Place) -> None:
        await place.files.write(f"{place.path}/a", b"kept", mode=0o600)

        await place.files.set_attributes(f"{place.path}/a", owner="daemon", group="54322", mode=0o600)

        seen = await look(place, "a")
        assert (seen.owner, seen.gid, seen.mode) == ("daemon", 54322, 0o600)

    async def test_a_symlink_is_refused(self, place: Place) -> None:
        await place.files.write(f"{place.path}/a", b"kept", mode=0o600)
        place.symlink(f"{place.path}/l", "a")

        with pytest.raises(FileError) as caught:
            await place.files.set_attributes(f"{place.path}/l", mode=0o444)

        assert caught.value.message == f"{place.path}/l: is a symlink; owner and mode are not set through it"
        assert (await look(place, "a")).mode == 0o600

    async def test_the_missing_part_is_said(self, place: Place) -> None:
        with pytest.raises(FileError) as caught:
            await place.files.set_attributes(f"{place.path}/a", mode=0o444)

        assert (caught.value.message, caught.value.errno) == (f"{place.path}/a: does not exist", errno.ENOENT)


class TestDirectories:
    async def test_those_above_are_made_with_the_same_mode(self, place: Place) -> None:
        await place.files.set_attributes(f"{place.path}/d/e/f", mode=0o700, directory=True)

        seen = await place.files.inspect([f"{place.path}/{name}" for name in ("d", "d/e", "d/e/f")])
        assert [(one.kind, one.mode) for one in seen] == [("directory", 0o700)] * 3

    async def test_one_that_exists_keeps_its_content(self, place: Place) -> None:
        await place.files.set_attributes(f"{place.path}/d", mode=0o700, directory=True)
        await place.files.write(f"{place.path}/d/a", b"x", mode=0o644)

        await place.files.set_attributes(f"{place.path}/d", mode=0o755, directory=True)

        assert (await look(place, "d")).mode == 0o755
        assert await read(place, "d/a") == b"x"

    async def test_a_symlink_to_nothing_gives_way(self, place: Place) -> None:
        place.symlink(f"{place.path}/d", "nowhere")

        await place.files.set_attributes(f"{place.path}/d", mode=0o755, directory=True)

        seen = await look(place, "d")
        assert (seen.kind, seen.link) == ("directory", "")

    async def test_a_symlink_to_a_file_gives_way_and_the_file_stays(self, place: Place) -> None:
        await place.files.write(f"{place.path}/a", b"x", mode=0o644)
        place.symlink(f"{place.path}/d", "a")

        await place.files.set_attributes(f"{place.path}/d", mode=0o755, directory=True)

        assert (await look(place, "d")).kind == "directory"
        assert await read(place, "a") == b"x"

    async def test_a_symlink_to_a_directory_is_never_replaced(self, place: Place) -> None:
        await place.files.set_attributes(f"{place.path}/real", mode=0o755, directory=True)
        place.symlink(f"{place.path}/d", "real")

        with pytest.raises(FileError) as caught:
            await place.files.set_attributes(f"{place.path}/d", mode=0o700, directory=True)

        assert caught.value.message == (
            f"{place.path}/d: is a symlink to a directory, which is not changed through it"
        )
        assert (await look(place, "real")).mode == 0o755
        assert (await look(place, "d")).link == "real"

    async def test_a_file_in_its_place_is_an_error(self, place: Place) -> None:
        await place.files.write(f"{place.path}/d", b"x", mode=0o644)

        with pytest.raises(FileError) as caught:
            await place.files.set_attributes(f"{place.path}/d", mode=0o755, directory=True)

        assert (caught.value.message, caught.value.errno) == (
            f"{place.path}/d: exists and is not a directory",
            errno.ENOTDIR,
        )

    async def test_an_unknown_owner_finds_the_directories_made(self, place: Place) -> None:
        with pytest.raises(FileError) as caught:
            await place.files.set_attributes(
                f"{place.path}/d/e", owner="no-such-user", mode=0o700, directory=True
            )

        assert caught.value.message == "there is no user 'no-such-user' on this machine"
        assert (await look(place, "d/e")).kind == "directory"

    @needs_root
    async def test_parent_directories_belong_to_the_current_user(self, place: Place) -> None:
        await place.files.set_attributes(f"{place.path}/d/e", owner="daemon", mode=0o700, directory=True)

        assert ((await look(place, "d")).owner, (await look(place, "d/e")).owner) == ("root", "daemon")


class TestLinking:
    async def test_a_symlink_is_made_whether_or_not_its_target_exists(self, place: Place) -> None:
        await place.files.link(f"{place.path}/a", "../no where")

        assert (await look(place, "a", follow=False)).link == "../no where"
        assert place.names(place.path) == ["a"]

    async def test_a_symlink_is_replaced_and_its_targets_stay(self, place: Place) -> None:
        await place.files.write(f"{place.path}/old", b"old", mode=0o644)
        await place.files.set_attributes(f"{place.path}/new", mode=0o755, directory=True)
        place.symlink(f"{place.path}/a", "old")

        await place.files.link(f"{place.path}/a", "new")
        await place.files.link(f"{place.path}/a", f"{place.path}/new")

        assert (await look(place, "a", follow=False)).link == f"{place.path}/new"
        assert await read(place, "old") == b"old"
        assert place.names(place.path) == ["a", "new", "old"]
        assert place.names(f"{place.path}/new") == []

    @pytest.mark.parametrize("kind", ["file", "directory"])
    async def test_a_file_or_an_empty_directory_is_replaced_with_force(self, place: Place, kind: str) -> None:
        await put(place, "a", kind)

        with pytest.raises(FileError) as caught:
            await place.files.link(f"{place.path}/a", "x")
        before = (await look(place, "a", follow=False)).kind
        await place.files.link(f"{place.path}/a", "x", force=True)

        assert caught.value.message == f"{place.path}/a: this is a {kind}, not a symlink"
        assert (before, (await look(place, "a", follow=False)).link) == (kind, "x")
        assert place.names(place.path) == ["a"]

    async def test_a_directory_with_content_stays_even_with_force(self, place: Place) -> None:
        await put(place, "a", "directory")
        await place.files.write(f"{place.path}/a/b", b"x", mode=0o644)

        with pytest.raises(FileError) as caught:
            await place.files.link(f"{place.path}/a", "x", force=True)

        assert caught.value.message == f"{place.path}/a: the symlink cannot be created: Directory not empty"
        assert caught.value.errno == errno.ENOTEMPTY
        assert (place.names(place.path), await read(place, "a/b")) == (["a"], b"x")

    async def test_a_fifo_stays_even_with_force(self, place: Place) -> None:
        place.fifo(f"{place.path}/a")

        with pytest.raises(FileError) as caught:
            await place.files.link(f"{place.path}/a", "x", force=True)

        assert caught.value.message == f"{place.path}/a: this is a FIFO, not a symlink"
        assert place.names(place.path) == ["a"]

    async def test_without_a_directory_it_fails(self, place: Place) -> None:
        with pytest.raises(FileError) as caught:
            await place.files.link(f"{place.path}/no/a", "x")

        assert caught.value.message == f"{place.path}/no/a: there is no directory {place.path}/no"

    async def test_an_unknown_user_is_reported_before_anything_is_written(self, place: Place) -> None:
        with pytest.raises(FileError) as caught:
            await place.files.link(f"{place.path}/a", "x", owner="no-such-user")

        assert caught.value.message == "there is no user 'no-such-user' on this machine"
        assert place.names(place.path) == []

    @needs_root
    async def test_the_symlink_is_given_away_and_its_target_is_not(self, place: Place) -> None:
        await place.files.write(f"{place.path}/real", b"x", mode=0o644)

        await place.files.link(f"{place.path}/a", "real", owner="daemon", group="54321")

        link, target = await look(place, "a", follow=False), await look(place, "real")
        assert (link.owner, link.gid, target.uid, target.gid) == ("daemon", 54321, 0, 0)


class TestRemoving:
    async def test_a_file_is_removed(self, place: Place) -> None:
        await place.files.write(f"{place.path}/a", b"x", mode=0o644)

        await place.files.remove(f"{place.path}/a")

        assert place.names(place.path) == []

    @pytest.mark.parametrize("name", ["a", "no/a"])
    async def test_the_missing_part_is_fine(self, place: Place, name: str) -> None:
        await place.files.remove(f"{place.path}/{name}")

        assert place.names(place.path) == []

    @pytest.mark.parametrize("recursive", [False, True])
    async def test_a_symlink_is_removed_and_its_target_directory_stays(
        self, place: Place, recursive: bool
    ) -> None:
        await place.files.set_attributes(f"{place.path}/real", mode=0o755, directory=True)
        await place.files.write(f"{place.path}/real/a", b"x", mode=0o644)
        place.symlink(f"{place.path}/d", "real")

        await place.files.remove(f"{place.path}/d", recursive=recursive)

        assert place.names(place.path) == ["real"]
        assert await read(place, "real/a") == b"x"

    async def test_an_empty_directory_is_removed(self, place: Place) -> None:
        await place.files.set_attributes(f"{place.path}/d", mode=0o755, directory=True)

        await place.files.remove(f"{place.path}/d")

        assert place.names(place.path) == []

    async def test_a_full_directory_stays(self, place: Place) -> None:
        await place.files.set_attributes(f"{place.path}/d", mode=0o755, directory=True)
        await place.files.write(f"{place.path}/d/a", b"x", mode=0o644)

        with pytest.raises(FileError) as caught:
            await place.files.remove(f"{place.path}/d")

        assert (caught.value.message, caught.value.errno) == (
            f"{place.path}/d: cannot be removed: Directory not empty",
            errno.ENOTEMPTY,
        )
        assert await read(place, "d/a") == b"x"

    async def test_a_tree_is_removed_and_the_targets_of_its_links_stay(self, place: Place) -> None:
        await place.files.set_attributes(f"{place.path}/d/e", mode=0o755, directory=True)
        await place.files.set_attributes(f"{place.path}/real", mode=0o755, directory=True)
        await place.files.write(f"{place.path}/real/a", b"x", mode=0o644)
        place.symlink(f"{place.path}/d/e/l", "../../real")

        await place.files.remove(f"{place.path}/d", recursive=True)

        assert place.names(place.path) == ["real"]
        assert await read(place, "real/a") == b"x"

    async def test_below_a_file_it_fails(self, place: Place) -> None:
        await place.files.write(f"{place.path}/f", b"x", mode=0o644)

        with pytest.raises(FileError) as caught:
            await place.files.remove(f"{place.path}/f/a")

        assert caught.value.errno == errno.ENOTDIR


class TestIds:
    @pytest.mark.parametrize(
        ("owner", "group", "numbers"),
        [
            pytest.param("root", "root", (0, 0), id="names"),
            pytest.param("54321", "0054322", (54321, 54322), id="digits are numbers, leading zeroes or not"),
            pytest.param("", "", (-1, -1), id="nothing means as it is"),
        ],
    )
    async def test_owner_and_group_become_numbers(
        self, place: Place, owner: str, group: str, numbers: tuple[int, int]
    ) -> None:
        assert await place.files.ids(owner, group) == numbers

    @pytest.mark.parametrize("owner", ["no-such-user", "-1", " root", "4294967295", "99999999999999999999"])
    async def test_an_unknown_user_is_refused(self, place: Place, owner: str) -> None:
        with pytest.raises(FileError):
            await place.files.ids(owner, "")
