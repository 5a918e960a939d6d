"""Files of this host, where the fake has nothing to say: kills, full disks, attributes, and people with bad intentions."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from ccm_agent.model.errors import FileError
from ccm_agent.model.ports import ContentRef
from ccm_agent.system import atomic_write as store_module
from ccm_agent.system import file_inspection as look_module
from ccm_agent.system.file_attributes import set_attributes
from ccm_agent.system.files import SystemFiles
from ccm_agent.system.http.download_file import DownloadedFile

TOP = Path(__file__).parents[3]
NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can play several users")

# version 2; user::rw-, user:daemon:rw-, group::r--, mask::rw-, other::---
ACL = bytes.fromhex(
    "0200000001000600ffffffff020006000100000004000400ffffffff10000600ffffffff20000000ffffffff"
)
# version 2; user::rwx, user:daemon:rwx, group::r-x, mask::rwx, other::r-x
ACL_WRITE = bytes.fromhex(
    "0200000001000700ffffffff020007000100000004000500ffffffff10000700ffffffff20000500ffffffff"
)


@pytest.fixture
def files() -> SystemFiles:
    return SystemFiles()


class TestKills:
    def test_a_kill_at_any_step_leaves_the_old_file_or_the_new_one(self, tmp_path: Path) -> None:
        script = Path(__file__).with_name("stores_until_killed.py")

        done = subprocess.run(
            [sys.executable, str(script), str(tmp_path)],
            env={"PYTHONPATH": str(TOP)},
            capture_output=True,
            text=True,
            check=True,
        )

        rows = [json.loads(line) for line in done.stdout.splitlines()]
        assert len(rows) > 30  # the steps were there to be killed at
        assert rows[-1] == {
            "step": len(rows),
            "killed": False,
            "content": "new",
            "mode": "0o644",
            "others": [],
        }
        assert {(row["content"], row["mode"]) for row in rows} == {("old", "0o600"), ("new", "0o644")}
        littered = [row for row in rows if row["others"]]
        assert all(name.startswith(".ccm-") for row in littered for name in row["others"])
        # a name beside the target exists only from the link to the rename: a few steps of all
        assert len(littered) <= 4

    def test_a_kill_at_any_step_of_an_unpacking_leaves_whole_files_and_no_proof_that_it_was_done(
        self, tmp_path: Path
    ) -> None:
        script = Path(__file__).with_name("unpacks_until_killed.py")

        done = subprocess.run(
            [sys.executable, str(script), str(tmp_path)],
            env={"PYTHONPATH": str(TOP)},
            capture_output=True,
            text=True,
            check=True,
        )

        rows = [json.loads(line) for line in done.stdout.splitlines()]
        whole = dict.fromkeys(["lib/one", "bin/app", "bin/more"], "whole")
        assert len(rows) > 30
        assert rows[-1]["killed"] is False
        assert all(kind != "torn" for row in rows for kind in row["left"].values())
        done_by = [row for row in rows if any(path.startswith("bin/") for path in row["left"])]
        assert all(row["left"].items() >= whole.items() for row in done_by)
        # the next one does all of it, and clears away what was left; but for a name that a file has for an instant
        littered = [row for row in rows if row["end"] != whole]
        assert all(row["end"].items() >= whole.items() for row in littered)
        assert len(littered) <= 4

    def test_a_killed_download_leaves_nothing(self, tmp_path: Path) -> None:
        script = """
import os, signal, sys
from ccm_agent.system.http.download_file import DownloadedFile
received = DownloadedFile(sys.argv[1] + "/.ccm-1.part")
received.add(b"x" * 1_000_000)
os.kill(os.getpid(), signal.SIGKILL)
"""

        done = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path)], env={"PYTHONPATH": str(TOP)}, check=False
        )

        assert (done.returncode, os.listdir(tmp_path)) == (-9, [])


class TestFullDisks:
    SCRIPT = """
import asyncio, os, sys
from ccm_agent.model.errors import FileError
from ccm_agent.system.files import SystemFiles
path = sys.argv[1] + "/a"
files = SystemFiles()
asyncio.run(files.write(path, b"old", mode=0o600))
try:
    asyncio.run(files.write(path, b"x" * 1_000_000, mode=0o644))
except FileError as err:
    print(err.message.replace(sys.argv[1], "DIR"), err.errno)
print(open(path).read(), os.listdir(sys.argv[1]))
"""

    def run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            argv, env={"PYTHONPATH": str(TOP), "PATH": os.environ["PATH"]}, capture_output=True, text=True
        )

    def test_a_limit_on_file_sizes_leaves_the_old_file_alone(self, tmp_path: Path) -> None:
        limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000))\n"

        done = self.run(sys.executable, "-c", limit + self.SCRIPT, str(tmp_path))

        assert done.stdout == f"DIR/a: cannot be written: File too large {errno.EFBIG}\nold ['a']\n"

    @needs_root
    def test_a_full_disk_leaves_the_old_file_alone(self, tmp_path: Path) -> None:
        mount = 'mount -t tmpfs -o size=256k tmpfs "$1" && exec "$2" -c "$3" "$1"'

        done = self.run("unshare", "-m", "sh", "-c", mount, "sh", str(tmp_path), sys.executable, self.SCRIPT)
        if done.returncode:
            pytest.skip(f"no file system can be mounted here: {done.stderr}")

        assert done.stdout == f"DIR/a: cannot be written: No space left on device {errno.ENOSPC}\nold ['a']\n"


class TestNames:
    async def test_a_name_as_long_as_names_can_be(self, files: SystemFiles, tmp_path: Path) -> None:
        path = f"{tmp_path}/{'n' * 255}"

        await files.write(path, b"x", mode=0o644)

        assert os.listdir(tmp_path) == ["n" * 255]

    async def test_a_longer_one_is_an_error_and_leaves_nothing(
        self, files: SystemFiles, tmp_path: Path
    ) -> None:
        with pytest.raises(FileError) as caught:
            await files.write(f"{tmp_path}/{'n' * 256}", b"x", mode=0o644)

        assert caught.value.errno == errno.ENAMETOOLONG
        assert os.listdir(tmp_path) == []

    @pytest.mark.parametrize("path", ["a", "./a", "", "/tmp/a\0b"])
    async def test_a_path_that_is_not_absolute_is_refused(self, files: SystemFiles, path: str) -> None:
        with pytest.raises(FileError) as caught:
            await files.write(path, b"x", mode=0o644)

        assert caught.value.message == f"{path!r}: this is not an absolute path"

    async def test_inspecting_an_invalid_path_does_not_crash(self, files: SystemFiles) -> None:
        (seen,) = await files.inspect(["/tmp/a\0b"])

        assert (seen.kind, seen.error) == ("unreadable", "embedded null byte")


class TestWhereFilesMustHaveNames:
    @pytest.fixture(autouse=True)
    def no_nameless_files(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(
            store_module, "_NAMELESS", os.O_RDWR
        )  # "Is a directory", as file systems say that know none

    async def test_a_file_is_written(self, files: SystemFiles, tmp_path: Path) -> None:
        await files.write(f"{tmp_path}/a", b"x", mode=0o640)

        assert (os.listdir(tmp_path), os.stat(tmp_path / "a").st_mode & 0o7777) == (["a"], 0o640)

    async def test_nothing_is_left_of_one_that_fails(self, files: SystemFiles, tmp_path: Path) -> None:
        os.mkdir(tmp_path / "src")
        task = asyncio.create_task(files.write(f"{tmp_path}/a", ContentRef("/proc/self/mem"), mode=0o640))

        with pytest.raises(FileError):
            await task

        assert os.listdir(tmp_path) == ["src"]


class TestWhatIsKept:
    async def test_extended_attributes_of_the_file_replaced(self, files: SystemFiles, tmp_path: Path) -> None:
        path = f"{tmp_path}/a"
        await files.write(path, b"old", mode=0o644)
        try:
            os.setxattr(path, "user.origin", b"here")
        except OSError:
            pytest.skip("this file system keeps no attributes")

        await files.write(path, b"new", mode=0o600)

        assert os.getxattr(path, "user.origin") == b"here"

    async def test_its_acl_with_the_mode_that_is_wanted(self, files: SystemFiles, tmp_path: Path) -> None:
        path = f"{tmp_path}/a"
        await files.write(path, b"old", mode=0o640)
        self.let_daemon_read(path)

        await files.write(path, b"new", mode=0o640)

        kept = os.getxattr(path, "system.posix_acl_access")
        assert kept[12:20] == ACL[12:20]  # the daemon's entry
        assert os.stat(path).st_mode & 0o7777 == 0o640

    @needs_root
    @pytest.mark.parametrize(("owner", "is_kept"), [("", False), ("root", False), ("nobody", True)])
    async def test_the_acl_of_a_file_of_another_user_is_not_copied(
        self, files: SystemFiles, tmp_path: Path, owner: str, is_kept: bool
    ) -> None:
        """He would read what is none of his; what stays his he may share."""
        path = f"{tmp_path}/a"
        await files.write(path, b"old", owner="nobody", mode=0o640)
        self.let_daemon_read(path)

        await files.write(path, b"new", owner=owner, mode=0o640)

        assert ("system.posix_acl_access" in os.listxattr(path)) is is_kept

    def let_daemon_read(self, path: str) -> None:
        try:
            os.setxattr(path, "system.posix_acl_access", ACL)
        except OSError:
            pytest.skip("this file system keeps no ACLs")

    @needs_root
    async def test_the_capabilities_of_a_replaced_program_are_not_copied(
        self, files: SystemFiles, tmp_path: Path
    ) -> None:
        path = f"{tmp_path}/a"
        await files.write(path, b"old", mode=0o755)
        try:
            os.setxattr(
                path, "security.capability", bytes.fromhex("0100000200040000000000000000000000000000")
            )
        except OSError:
            pytest.skip("this file system keeps no capabilities")

        await files.write(path, b"new", mode=0o755)

        assert os.listxattr(path) == []

    async def test_another_name_of_the_file_keeps_the_old_content(
        self, files: SystemFiles, tmp_path: Path
    ) -> None:
        await files.write(f"{tmp_path}/a", b"old", mode=0o644)
        os.link(tmp_path / "a", tmp_path / "twin")

        await files.write(f"{tmp_path}/a", b"new", mode=0o644)

        assert (tmp_path / "twin").read_bytes() == b"old"


@needs_root
class TestWhatOthersPlant:
    @pytest.fixture
    def open_to_all(self, tmp_path: Path) -> Path:
        """A directory like /tmp, and one of root's besides."""
        os.chmod(tmp_path, 0o755)
        shared = tmp_path / "shared"
        shared.mkdir()
        shared.chmod(0o1777)
        (tmp_path / "etc").mkdir()
        return shared

    def plant(self, path: Path, target: str) -> None:
        os.symlink(target, path)
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)

    async def test_a_symlink_on_the_way_leads_no_write_of_root_astray(
        self, files: SystemFiles, open_to_all: Path
    ) -> None:
        self.plant(open_to_all / "app", "../etc")

        with pytest.raises(FileError) as caught:
            await files.write(f"{open_to_all}/app/passwd", b"x", mode=0o644)

        assert caught.value.message == (
            f"{open_to_all}/app/passwd: will not follow the symlink 'app', owned by user nobody, to a directory owned by user "
            "root: use the directory's own path, or make root the owner of the link"
        )
        assert os.listdir(open_to_all.parent / "etc") == []

    @pytest.mark.parametrize("verb", ["attributes", "directory", "remove", "link"])
    async def test_nor_any_other_change(self, files: SystemFiles, open_to_all: Path, verb: str) -> None:
        victim = open_to_all.parent / "etc" / "victim"
        victim.write_text("x")
        self.plant(open_to_all / "app", "../etc")
        changes = {
            "attributes": lambda: files.set_attributes(
                f"{open_to_all}/app/victim", owner="nobody", mode=0o666
            ),
            "directory": lambda: files.set_attributes(f"{open_to_all}/app/new", mode=0o777, directory=True),
            "remove": lambda: files.remove(f"{open_to_all}/app/victim", recursive=True),
            "link": lambda: files.link(f"{open_to_all}/app/victim", "x", owner="nobody", force=True),
        }

        with pytest.raises(FileError):
            await changes[verb]()

        assert os.listdir(victim.parent) == ["victim"]
        assert (os.stat(victim).st_uid, os.stat(victim).st_mode & 0o7777) == (0, 0o644)

    async def test_a_link_through_a_link_is_refused_too(self, files: SystemFiles, open_to_all: Path) -> None:
        self.plant(open_to_all / "one", "two")
        self.plant(open_to_all / "two", f"{open_to_all.parent}/etc")

        with pytest.raises(FileError):
            await files.write(f"{open_to_all}/one/passwd", b"x", mode=0o644)

        assert os.listdir(open_to_all.parent / "etc") == []

    async def test_a_user_may_link_to_his_own_directory(self, files: SystemFiles, open_to_all: Path) -> None:
        home = open_to_all.parent / "home"
        home.mkdir()
        os.chown(home, NOBODY, NOBODY)
        self.plant(open_to_all / "app", str(home))

        await files.write(f"{open_to_all}/app/a", b"x", mode=0o644)

        assert os.listdir(home) == ["a"]

    async def test_links_of_root_are_followed(self, files: SystemFiles, open_to_all: Path) -> None:
        os.symlink("../etc", open_to_all / "app")

        await files.write(f"{open_to_all}/app/a", b"x", mode=0o644)

        assert os.listdir(open_to_all.parent / "etc") == ["a"]

    async def test_a_link_at_the_end_is_replaced_and_not_followed(
        self, files: SystemFiles, open_to_all: Path
    ) -> None:
        victim = open_to_all.parent / "etc" / "victim"
        victim.write_text("x")
        self.plant(open_to_all / "a", "../etc/victim")

        await files.write(f"{open_to_all}/a", b"new", owner="nobody", mode=0o666)

        assert (victim.read_text(), os.stat(victim).st_uid) == ("x", 0)
        assert (open_to_all / "a").read_bytes() == b"new"

    async def test_a_replacement_of_a_new_symlink_is_not_given_away(
        self, files: SystemFiles, open_to_all: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        victim = open_to_all.parent / "etc" / "victim"
        victim.write_text("x")
        (open_to_all / "a").symlink_to("old")

        def swap(_target: str, name: str, *, dir_fd: int) -> None:
            os.link(victim, name, dst_dir_fd=dir_fd)

        monkeypatch.setattr(os, "symlink", swap)
        with pytest.raises(FileError) as caught:
            await files.link(f"{open_to_all}/a", "new", owner="nobody")

        assert caught.value.message == (
            f"{open_to_all}/a: another process replaced the new symlink before it was put in place; nothing was changed"
        )
        assert os.stat(victim).st_uid == 0
        assert (os.listdir(open_to_all), os.readlink(open_to_all / "a")) == (["a"], "old")

    async def test_a_second_name_for_a_file_of_root_does_not_change_its_owner(
        self, files: SystemFiles, open_to_all: Path
    ) -> None:
        victim = open_to_all.parent / "etc" / "victim"
        victim.write_text("x")
        os.link(victim, open_to_all / "a")

        with pytest.raises(FileError) as caught:
            await files.set_attributes(f"{open_to_all}/a", owner="nobody", mode=0o666)

        assert caught.value.message == (
            f"{open_to_all}/a: has another hard link, and other users can create entries in its directory; "
            "its owner and mode are not changed"
        )
        assert os.stat(victim).st_uid == 0

    @pytest.mark.parametrize("mode", [0o2775, 0o775, 0o770])
    async def test_nor_does_one_where_a_group_makes_names(
        self, files: SystemFiles, open_to_all: Path, mode: int
    ) -> None:
        shared = open_to_all.parent / "group"
        self.directory(shared, mode, gid=NOBODY)
        victim = open_to_all.parent / "etc" / "victim"
        victim.write_text("x")
        os.link(victim, shared / "a")

        with pytest.raises(FileError, match="other users can create entries in its directory"):
            await files.set_attributes(f"{shared}/a", owner="nobody", mode=0o666)

        assert (os.stat(victim).st_uid, os.stat(victim).st_mode & 0o777) == (0, 0o644)

    async def test_a_hardlink_in_a_directory_with_a_writing_acl_is_refused(
        self, files: SystemFiles, open_to_all: Path
    ) -> None:
        shared = open_to_all.parent / "with-acl"
        self.directory(shared, 0o775, gid=0)
        try:
            os.setxattr(shared, "system.posix_acl_access", ACL_WRITE)
        except OSError:
            pytest.skip("this file system keeps no ACLs")
        victim = open_to_all.parent / "etc" / "victim"
        victim.write_text("x")
        os.link(victim, shared / "a")

        with pytest.raises(FileError, match="other users can create entries in its directory"):
            await files.set_attributes(f"{shared}/a", owner="nobody", mode=0o666)

    @pytest.mark.parametrize(
        ("mode", "gid", "second_name"),
        [
            pytest.param(0o2775, NOBODY, False, id="a file with one name"),
            pytest.param(0o775, 0, True, id="where only root's group makes names"),
            pytest.param(0o755, NOBODY, True, id="where only the owner makes names"),
        ],
    )
    async def test_others_get_their_owner_and_mode(
        self, files: SystemFiles, open_to_all: Path, mode: int, gid: int, second_name: bool
    ) -> None:
        shared = open_to_all.parent / "group"
        self.directory(shared, mode, gid)
        (shared / "a").write_text("x")
        if second_name:
            os.link(shared / "a", shared / "b")

        await files.set_attributes(f"{shared}/a", owner="nobody", mode=0o640)

        assert (os.stat(shared / "a").st_uid, os.stat(shared / "a").st_mode & 0o777) == (NOBODY, 0o640)

    def directory(self, path: Path, mode: int, gid: int) -> None:
        path.mkdir()
        os.chown(path, 0, gid)
        path.chmod(mode)

    @pytest.mark.parametrize("by", ["a file", "a second name"])
    async def test_a_replacement_of_a_staged_file_is_not_adopted(
        self, files: SystemFiles, open_to_all: Path, by: str
    ) -> None:
        victim = open_to_all.parent / "etc" / "victim"
        victim.write_text("x")
        if by == "a file":
            (open_to_all / ".staged").write_text("evil")
            os.chown(open_to_all / ".staged", NOBODY, NOBODY)
        else:
            os.link(victim, open_to_all / ".staged")

        with pytest.raises(FileError) as caught:
            await files.replace(f"{open_to_all}/.staged", f"{open_to_all}/a", owner="nobody", mode=0o755)

        assert caught.value.message == (
            f"{open_to_all}/a: another process replaced the new file before it was put in place; nothing was changed"
        )
        assert os.listdir(open_to_all) == []
        assert os.stat(victim).st_uid == 0

    def test_no_download_is_begun_where_a_symlink_on_the_way_leads(self, open_to_all: Path) -> None:
        self.plant(open_to_all / "app", "../etc")

        with pytest.raises(FileError):
            DownloadedFile(f"{open_to_all}/app/.ccm-1.part")

        assert os.listdir(open_to_all.parent / "etc") == []


class TestOthersRights:
    @needs_root
    def test_an_owner_can_set_the_mode_of_an_unreadable_file(self) -> None:
        with (
            tempfile.TemporaryDirectory() as directory
        ):  # tmp_path is in a directory that only root may enter
            os.chmod(directory, 0o777)
            path = f"{directory}/a"
            os.seteuid(NOBODY)
            try:
                os.close(os.open(path, os.O_CREAT, 0o200))
                set_attributes(path, "", "", 0o440)
            finally:
                os.seteuid(0)

            assert os.stat(path).st_mode & 0o7777 == 0o440


class TestCancellation:
    async def test_a_store_that_was_begun_is_finished_before_the_cancellation_continues(
        self, files: SystemFiles, tmp_path: Path
    ) -> None:
        task = asyncio.create_task(files.write(f"{tmp_path}/a", b"x" * 1_000_000, mode=0o644))
        await asyncio.sleep(0)

        task.cancel()

        with pytest.raises(asyncio.CancelledError):
            await task
        assert os.listdir(tmp_path) in ([], ["a"])

    async def test_digests_of_large_files_are_given_up(
        self, files: SystemFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(look_module, "HONEST_BYTES", 1 << 50)
        await files.write(f"{tmp_path}/large", b"", mode=0o644)
        os.truncate(tmp_path / "large", 1 << 40)
        task = asyncio.create_task(
            files.inspect([f"{tmp_path}/large"], digest={f"{tmp_path}/large": [1 << 40]})
        )
        await asyncio.sleep(0)

        task.cancel()

        with pytest.raises(asyncio.CancelledError):
            async with asyncio.timeout(5):
                await task
