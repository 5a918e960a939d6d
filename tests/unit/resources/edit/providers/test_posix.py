"""Edits through the flow, on files in memory: what is read, written, validated and left alone."""

from __future__ import annotations

from typing import Any

import pytest

from ccm_agent.engine.diffs import RunDiffs
from ccm_agent.model.outcome import TransactionEvent
from ccm_agent.model.secret import Masker
from ccm_agent.resources.edit import TYPE
from ccm_agent.resources.edit.model import Edit, EditProperties
from ccm_agent.resources.edit.providers.posix import LIMIT_BYTES, PosixEdit
from ccm_agent.resources.file import TYPE as FILE
from ccm_agent.resources.file.model import FileProperties
from ccm_agent.resources.file.providers.posix import PosixFile
from ccm_agent.resources.file_editor import CONTRADICTION
from ccm_agent.testing.files import FakeFiles
from ccm_agent.testing.runner import FakeRunner
from tests.support.resources import manage

PATH = "/etc/ssh/sshd_config"
INVALID = "the new content is not valid, so nothing was written"


class Host:
    """Files and programs in memory."""

    def __init__(self, content: bytes | None = b"a\n", **attributes: int) -> None:
        self.files = FakeFiles()
        self.files.put_directory("/etc/ssh")
        self.runner = FakeRunner()
        if content is not None:
            self.files.put(PATH, content, **attributes)
        self.provider = PosixEdit(self.files, self.runner)

    async def apply(
        self, *, noop: bool = False, diffs: RunDiffs | None = None, **properties: Any
    ) -> TransactionEvent:
        wanted = EditProperties(**{"name": PATH, "ensure": "present", **properties})
        return await manage(TYPE, self.provider, wanted, noop=noop, diffs=diffs)

    @property
    def content(self) -> bytes:
        return self.files.nodes[PATH].content

    @property
    def names(self) -> set[str]:
        return set(self.files.nodes) - {"/", "/etc", "/etc/ssh"}


async def test_an_edit_keeps_owner_and_mode() -> None:
    host = Host(b"a\n", mode=0o4640, uid=1, gid=65534)

    first, second = await host.apply(line="b"), await host.apply(line="b")

    node = host.files.nodes[PATH]
    assert (node.content, node.mode, node.uid, node.gid) == (b"a\nb\n", 0o4640, 1, 65534)
    assert (first.changed, first.error, second.changed) == (True, [], False)


async def test_a_plan_changes_nothing() -> None:
    host = Host()

    event = await host.apply(line="b", noop=True)

    assert (event.noop_message, host.content) == ("Would have edited the file", b"a\n")


@pytest.mark.parametrize(("sensitive", "mode"), [(False, 0o644), (True, 0o600)])
async def test_a_missing_file_is_created_on_request(sensitive: bool, mode: int) -> None:
    host = Host(None)

    event = await host.apply(line="b", create=True, sensitive=sensitive)

    assert (event.changed, host.content, host.files.nodes[PATH].mode) == (True, b"b\n", mode)


async def test_a_missing_file_is_an_error_otherwise() -> None:
    event = await Host(None).apply(line="b")

    assert event.error == [f"{PATH}: there is no such file; set `create: true` to create it"]


async def test_a_plan_expects_a_missing_file_from_what_is_required() -> None:
    event = await Host(None).apply(line="b", require=["package#ssh"], noop=True)

    assert event.noop_message == "Would have edited the file, which does not exist yet"


async def test_what_is_absent_from_a_missing_file_is_absent() -> None:
    event = await Host(None).apply(ensure="absent", line="b")

    assert (event.changed, event.failed, event.final_ensure) == (False, False, "absent")


async def test_several_edits_of_a_file_are_one_write() -> None:
    host = Host()
    writes: list[str] = []
    write = host.files.write

    async def counted(path: str, *args: Any, **kwargs: Any) -> None:
        writes.append(path)
        await write(path, *args, **kwargs)

    host.files.write = counted  # type: ignore[method-assign]

    await host.apply(edits=[Edit(line=f"line {number}") for number in range(25)])

    assert (writes, host.content.count(b"\n")) == ([PATH], 26)


async def test_states_of_many_edits_need_one_read_for_each_file() -> None:
    files, reads = FakeFiles(), []
    for number in range(20):
        files.put(f"/etc/f{number}", "a\n")
    read = files.read

    async def counted(path: str, limit_bytes: int) -> bytes:
        reads.append(path)
        return await read(path, limit_bytes)

    files.read = counted  # type: ignore[method-assign]
    wanted = [
        EditProperties(name=f"e{number}", path=f"/etc/f{number % 20}", ensure="present", line="a")
        for number in range(500)
    ]

    states = await PosixEdit(files, FakeRunner()).look_ahead(wanted)

    assert (len(reads), len(files.looked_at)) == (20, 1)
    assert [(one.name, one.ensure) for one in states] == [(one.name, "present") for one in wanted]


async def test_edits_that_contradict_each_other_are_refused() -> None:
    host = Host()

    event = await host.apply(edits=[Edit(line="b"), Edit(line="c", match="^b$")])

    assert event.error == [f"{PATH}: {CONTRADICTION}"]
    assert host.content == b"a\n"


# ---- validate ----


async def test_a_valid_content_replaces_the_file() -> None:
    host = Host(b"a\n", mode=0o640, uid=1, gid=1)
    seen: list[bytes] = []

    def look() -> None:
        (staged,) = (path for path in host.names if path != PATH)
        seen.append(host.files.nodes[staged].content)
        assert host.files.nodes[staged].mode == 0o600

    host.runner.when("sshd", "-t", "-f", effect=look)

    event = await host.apply(line="b", validate="sshd -t -f %s")

    assert (event.changed, event.error, seen) == (True, [], [b"a\nb\n"])
    assert host.names == {PATH}
    assert (host.content, host.files.nodes[PATH].mode, host.files.nodes[PATH].uid) == (b"a\nb\n", 0o640, 1)
    staged = host.runner.commands[0].argv[3]
    assert staged.startswith("/etc/ssh/.ccm-")


@pytest.mark.parametrize(
    ("script", "error"),
    [
        (
            {"code": 255, "stderr": "line 3: bad"},
            f"{INVALID}: `sshd` ended with exit code 255",
        ),
        (
            {"code": -9},
            f"{INVALID}: `sshd` was killed by signal 9",
        ),
        ({"hangs": True}, "the `validate` command took longer than 60 seconds; nothing was written"),
        ({"error": "sshd: not found"}, "the `validate` command cannot be run: sshd: not found"),
    ],
)
async def test_an_invalid_content_leaves_the_file_alone(script: dict[str, Any], error: str) -> None:
    host = Host()
    host.runner.when("sshd", **script)

    event = await host.apply(line="b", validate="sshd -t -f %s")

    assert event.error == [error]
    assert (host.content, host.names) == (b"a\n", {PATH})


async def test_the_output_of_a_failed_validation_is_in_the_event() -> None:
    host = Host()
    host.runner.when("sshd", code=1, stdout="line 3: bad option")

    event = await host.apply(line="b", validate="sshd -t -f %s")

    assert event.output == "line 3: bad option"


async def test_a_file_that_is_right_is_not_validated() -> None:
    host = Host()

    event = await host.apply(line="a", validate="sshd -t -f %s")

    assert (event.changed, host.runner.lines) == (False, [])


# ---- hostile files ----


class RenamedWhileRead(FakeFiles):
    """A user renames a file of root over their own one whenever the content is read, and back."""

    async def read(self, path: str, limit_bytes: int) -> bytes:
        return b"of root\n"


async def test_content_of_one_file_never_gets_owner_and_mode_of_another() -> None:
    files = RenamedWhileRead()
    files.put("/home/alice/.bashrc", b"of alice\n", uid=1000)
    wanted = EditProperties(name="/home/alice/.bashrc", ensure="present", line="b")

    event = await manage(TYPE, PosixEdit(files, FakeRunner()), wanted)

    assert "another process changed the file" in event.error[0]
    assert files.nodes["/home/alice/.bashrc"].content == b"of alice\n"


async def test_a_file_that_changed_in_between_is_left_alone() -> None:
    host = Host()
    host.runner.when("sshd", effect=lambda: host.files.put(PATH, "other\n"))

    event = await host.apply(line="b", validate="sshd -t -f %s")

    assert event.error == [f"{PATH}: another process changed the file during the edit; nothing was written"]
    assert (host.content, host.names) == (b"other\n", {PATH})


async def test_a_program_of_validate_must_not_change_the_content() -> None:
    host = Host()

    def spoil() -> None:
        (staged,) = (path for path in host.names if path != PATH)
        host.files.put(staged, "spoiled", mode=0o600)

    host.runner.when("sshd", effect=spoil)

    event = await host.apply(line="b", validate="sshd -t -f %s")

    assert event.error == [f"{PATH}: the `validate` command changed the file that it checks"]
    assert (host.content, host.names) == (b"a\n", {PATH})


async def test_a_symlink_is_replaced_by_the_edited_file_and_its_target_stays() -> None:
    host = Host(None)
    host.files.put("/srv/real", "a\n", mode=0o640, uid=1)
    host.files.put_symlink(PATH, "/srv/real")

    event = await host.apply(line="b")

    node = host.files.nodes[PATH]
    assert (event.changed, node.kind, node.content, node.mode, node.uid) == (
        True,
        "file",
        b"a\nb\n",
        0o640,
        1,
    )
    assert host.files.nodes["/srv/real"].content == b"a\n"


@pytest.mark.parametrize(
    ("put", "error"),
    [
        (lambda files: files.put_directory(PATH), "it is a directory; only files can be edited"),
        (lambda files: files.put_fifo(PATH), "it is a FIFO, socket or device; only files can be edited"),
        (
            lambda files: files.put(PATH, b"a\0"),
            "it contains NUL bytes, so it is not text (UTF-16 is not supported)",
        ),
        (
            lambda files: files.put(PATH, b"a" * (LIMIT_BYTES + 1)),
            f"is larger than {LIMIT_BYTES} bytes, which is the limit here",
        ),
        (lambda files: files.put_symlink(PATH, "sshd_config"), "it is not readable: "),
    ],
)
async def test_what_is_no_text_file_is_an_error(put: Any, error: str) -> None:
    host = Host(None)
    put(host.files)
    before = host.files.nodes[PATH]

    event = await host.apply(line="b", create=True)

    assert event.error[0].startswith(f"{PATH}: {error}")
    assert host.files.nodes[PATH] is before


async def test_a_write_that_fails_leaves_nothing_behind() -> None:
    host = Host()
    host.files.refuses[PATH] = "read-only file system"

    event = await host.apply(line="b")

    assert (event.failed, host.content, host.names) == (True, b"a\n", {PATH})


# ---- reports ----


@pytest.mark.parametrize(
    ("mode", "sensitive", "text"),
    [(0o644, False, "@@ -1 +1,2 @@\n a\n+b\n"), (0o600, False, ""), (0o644, True, None)],
)
async def test_a_diff_shows_what_every_user_may_read(mode: int, sensitive: bool, text: str | None) -> None:
    diffs = RunDiffs(Masker(), is_wanted=True)

    event = await Host(b"a\n", mode=mode).apply(line="b", sensitive=sensitive, diffs=diffs)

    assert event.diff is not None
    assert [one.text for one in event.diff.files] == ([] if text is None else [text])


@pytest.mark.parametrize("content", [None, b"a\n"])
async def test_a_state_is_recognized_like_that_of_a_file(content: bytes | None) -> None:
    host = Host(content, **({} if content is None else {"mode": 0o640}))
    edit = await host.provider.status(EditProperties(name=PATH, ensure="present", line="b"))
    file = await PosixFile(host.files, "/").status(FileProperties(name=PATH, ensure="present"))

    assert TYPE.undo is not None
    assert FILE.undo is not None
    assert TYPE.undo.identify(edit) == FILE.undo.identify(file)
