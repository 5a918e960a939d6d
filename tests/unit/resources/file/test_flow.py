"""The file type in the flow that manages every resource: what holds whatever is wanted and whatever is there."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ccm_agent.model.outcome import TransactionEvent
from ccm_agent.resources.file import TYPE
from ccm_agent.resources.file.model import FileProperties, FileState
from ccm_agent.resources.file.providers.posix import PosixFile
from ccm_agent.resources.file.resource import check
from ccm_agent.testing.files import FakeFiles
from tests.support.resources import manage

NAMES = ["/a", "/d", "/d/a", "/d/e", "/link", "/link/a", "/none/a"]

wishes = st.builds(
    lambda name, ensure, content, owner, mode, force: FileProperties(
        name=name,
        ensure=ensure,
        content=content if ensure == "present" else None,
        owner=owner,
        group=owner,
        mode=mode,
        force=force and ensure == "absent",
    ),
    st.sampled_from(NAMES),
    st.sampled_from(["present", "absent", "directory"]),
    st.sampled_from([None, "", "x", "y"]),
    st.sampled_from(["root", "daemon", "0", "54321", "no-such-user"]),
    st.sampled_from(["0644", "600", "0o755"]),
    st.booleans(),
)


@st.composite
def hosts(draw: st.DrawFn) -> FakeFiles:
    """Files, directories, symlinks and a FIFO in places that the wishes are about."""
    files = FakeFiles()
    for path in draw(st.lists(st.sampled_from(["/a", "/d/a", "/d/e/f"]), unique=True)):
        files.put(
            path, draw(st.sampled_from(["", "x", "y"])), mode=draw(st.sampled_from([0o600, 0o644, 0o4755]))
        )
    if draw(st.booleans()):
        files.put_directory(
            "/d", mode=draw(st.sampled_from([0o700, 0o755])), uid=draw(st.sampled_from([0, 1]))
        )
    target = draw(st.sampled_from(["d", "a", "nowhere", "link", ""]))
    if target:
        files.put_symlink("/link", target)
    if draw(st.booleans()):
        files.put_fifo("/d/a")
    return files


async def apply(files: FakeFiles, wanted: FileProperties, *, noop: bool = False) -> TransactionEvent:
    check(wanted)
    return await manage(TYPE, PosixFile(files, "/"), copy.deepcopy(wanted), noop=noop)


def shape(files: FakeFiles) -> dict[str, Any]:
    return {path: (n.kind, n.content, n.link, n.mode, n.uid, n.gid) for path, n in files.nodes.items()}


@given(hosts(), wishes)
@settings(max_examples=300)
async def test_an_applied_file_is_stable(files: FakeFiles, wanted: FileProperties) -> None:
    first = await apply(files, wanted)
    after = shape(files)

    second = await apply(files, wanted)

    assert shape(files) == after
    if first.failed:
        assert second.failed
    else:
        assert (second.changed, second.failed) == (False, False)


@given(hosts(), wishes)
@settings(max_examples=300)
async def test_noop_changes_nothing_and_predicts_apply(files: FakeFiles, wanted: FileProperties) -> None:
    before = shape(files)

    noop = await apply(files, wanted, noop=True)
    assert shape(files) == before
    real = await apply(files, wanted)

    if real.failed:
        return  # what only a change finds out, such as a missing directory, noop cannot know
    assert (noop.failed, noop.changed) == (False, real.changed)
    assert bool(noop.noop_message) is real.changed
    said = {
        "": before,
        "Would have created the file": {wanted.name: "file"},
        "Would have created an empty file with requested attributes": {wanted.name: "file"},
        "Would have updated attributes": {wanted.name: "file"},
        "Would have created directory": {wanted.name: "directory"},
    }.get(noop.noop_message)
    if said is before:
        assert shape(files) == before
    elif said is not None:
        (look,) = await files.inspect([wanted.name])
        assert look.kind == said[wanted.name]
    else:
        assert noop.noop_message.startswith("Would have ")
        (look,) = await files.inspect([wanted.name], follow=False)
        assert look.kind == "absent"


async def test_a_file_that_became_right_reports_a_stable_state() -> None:
    files = FakeFiles()

    event = await apply(
        files,
        FileProperties(name="/a", ensure="present", content="x", owner="root", group="root", mode="0644"),
    )

    assert (event.changed, event.final_ensure, event.status.stable, event.noop) == (
        True,
        "present",
        True,
        False,
    )


async def test_a_change_that_has_no_effect_is_a_failure() -> None:
    class Deaf(PosixFile):
        async def store(self, wanted: FileProperties) -> None:
            pass

    wanted = FileProperties(name="/a", ensure="present", content="x", owner="root", group="root", mode="0644")

    event = await manage(TYPE, Deaf(FakeFiles(), "/"), wanted)

    assert (event.failed, event.error) == (
        True,
        ["failed to reach desired state present: it is absent, wanted present"],
    )


async def test_a_state_that_the_change_returns_is_verified_as_well() -> None:
    class Overtaken(PosixFile):
        async def store(self, wanted: FileProperties) -> FileState | None:
            state = await super().store(wanted)
            assert state is not None
            state.metadata.mode = "0600"
            return state

    wanted = FileProperties(name="/a", ensure="present", content="x", owner="root", group="root", mode="0644")

    event = await manage(TYPE, Overtaken(FakeFiles(), "/"), wanted)

    assert (event.failed, event.error) == (
        True,
        ["failed to reach desired state present: mode mismatch: found 0600, wanted 0644"],
    )
