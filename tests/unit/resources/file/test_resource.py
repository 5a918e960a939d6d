"""Every row of the file type's decision table, and every property it refuses, with the message a user reads."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest

from ccm_agent.model.errors import PropertyError
from ccm_agent.resources.contract import Decision, DecisionContext
from ccm_agent.resources.file.model import FileMetadata, FileProperties, FileState, SourceFile
from ccm_agent.resources.file.resource import check, decide, finalize

RIGHT: dict[str, Any] = {"owner": "root", "group": "root", "mode": "0644"}
CREATE = "Would have created the file"
CREATE_EMPTY = "Would have created an empty file with requested attributes"
UPDATE = "Would have updated attributes"
CREATE_DIRECTORY = "Would have created directory"
REMOVE = "Would have removed the file"
REMOVE_DIRECTORY = "Would have removed the directory"
REMOVE_TREE = "Would have recursively removed the directory"


def wanted(ensure: str, **properties: Any) -> FileProperties:
    return FileProperties(
        name="/etc/motd", ensure=ensure, **({} if ensure == "absent" else RIGHT) | properties
    )


def found(
    ensure: str = "present",
    content: str = "",
    *,
    mode: str = "0644",
    owner: str = "root",
    uid: int = 0,
    group: str = "root",
    gid: int = 0,
    link: str = "",
    source: SourceFile | None = None,
) -> FileState:
    is_there = ensure != "absent"
    metadata = FileMetadata(
        name="/etc/motd",
        owner=owner if is_there else "",
        group=group if is_there else "",
        mode=mode if is_there else "",
        checksum=sha256(content.encode()).hexdigest() if ensure == "present" else "",
        uid=uid if is_there else -1,
        gid=gid if is_there else -1,
        link=link,
    )
    state = FileState(protocol="p", type="file", name="/etc/motd", ensure=ensure, metadata=metadata)
    if source:
        state.source = source
    return state


ABSENT = found("absent")
DIRECTORY = found("directory", mode="0755")
UNREADABLE = FileState(
    protocol="p",
    type="file",
    name="/etc/motd",
    ensure="present",
    metadata=FileMetadata(name="/etc/motd", owner="", group="", mode="", error="Not a directory"),
)


def ask(properties: FileProperties, state: FileState) -> Decision:
    return decide(properties, state, DecisionContext())


@pytest.mark.parametrize(
    ("properties", "state", "steps"),
    [
        pytest.param(wanted("absent"), ABSENT, [], id="absent and absent"),
        pytest.param(wanted("absent"), found("present"), [REMOVE], id="absent and a file"),
        pytest.param(
            wanted("absent"), found("present", link="real"), [REMOVE], id="absent and a symlink to a file"
        ),
        pytest.param(
            wanted("absent"), found("absent", link="nowhere"), [REMOVE], id="absent and a dangling symlink"
        ),
        pytest.param(
            wanted("absent"), DIRECTORY, [REMOVE_DIRECTORY], id="absent and a directory, empty or not"
        ),
        pytest.param(
            wanted("absent", force=True), DIRECTORY, [REMOVE_TREE], id="absent and a directory with force"
        ),
        pytest.param(
            wanted("absent", force=True), found("present"), [REMOVE], id="absent and a file with force"
        ),
        pytest.param(wanted("absent"), UNREADABLE, [REMOVE], id="absent and what cannot be looked at"),
        pytest.param(
            wanted("absent", owner="nobody", mode="0600"), ABSENT, [], id="absent looks at no attributes"
        ),
        pytest.param(wanted("directory"), DIRECTORY, [], id="directory and a right one"),
        pytest.param(wanted("directory"), ABSENT, [CREATE_DIRECTORY], id="directory and absent"),
        pytest.param(wanted("directory"), found("present"), [CREATE_DIRECTORY], id="directory and a file"),
        pytest.param(
            wanted("directory"),
            found("absent", link="no"),
            [CREATE_DIRECTORY],
            id="directory and a dangling symlink",
        ),
        pytest.param(
            wanted("directory"),
            found("directory", mode="0700"),
            [CREATE_DIRECTORY],
            id="directory and another mode",
        ),
        pytest.param(
            wanted("directory"),
            found("directory", mode="0755", owner="daemon", uid=1),
            [CREATE_DIRECTORY],
            id="directory and another owner",
        ),
        pytest.param(
            wanted("directory"),
            found("directory", mode="0755", link="real"),
            [],
            id="directory and a link to a right one",
        ),
        pytest.param(wanted("present", content="x"), found(content="x"), [], id="content and all right"),
        pytest.param(wanted("present", content="x"), ABSENT, [CREATE], id="content and absent"),
        pytest.param(wanted("present", content=""), ABSENT, [CREATE], id="empty content and absent"),
        pytest.param(
            wanted("present", content="x"), found(content="y"), [CREATE], id="content and other content"
        ),
        pytest.param(
            wanted("present", content=""), found(content="y"), [CREATE], id="empty content and content"
        ),
        pytest.param(
            wanted("present", content="x"),
            found(content="x", mode="0600"),
            [CREATE],
            id="content and another mode",
        ),
        pytest.param(
            wanted("present", content="x"),
            found(content="x", owner="daemon", uid=1),
            [CREATE],
            id="content and another owner",
        ),
        pytest.param(
            wanted("present", content="x"),
            found(content="x", group="daemon", gid=1),
            [CREATE],
            id="content and another group",
        ),
        pytest.param(
            wanted("present", content="x"), UNREADABLE, [CREATE], id="content and what cannot be looked at"
        ),
        pytest.param(
            wanted("present", content="x"),
            found("absent", link="no"),
            [CREATE],
            id="content and a dangling symlink",
        ),
        pytest.param(
            wanted("present", content="x"),
            found(content="x", link="real"),
            [],
            id="content and a link to a right file",
        ),
        pytest.param(
            wanted("present", source="/src"),
            found(content="x", source=SourceFile(path="/src", checksum=sha256(b"x").hexdigest())),
            [],
            id="a source and all right",
        ),
        pytest.param(
            wanted("present", source="/src"),
            found(content="x", source=SourceFile(path="/src", checksum=sha256(b"y").hexdigest())),
            [CREATE],
            id="a source and other content",
        ),
        pytest.param(
            wanted("present", source="/src"),
            found("absent", source=SourceFile(path="/src", error="there is no such file")),
            [CREATE],
            id="a source that is not there and absent: only the change finds out",
        ),
        pytest.param(wanted("present"), found(content="any"), [], id="attributes alone and right"),
        pytest.param(
            wanted("present"),
            found(content="any", mode="0600"),
            [UPDATE],
            id="attributes alone and another mode",
        ),
        pytest.param(
            wanted("present"),
            found(content="any", owner="daemon", uid=1),
            [UPDATE],
            id="attributes alone and another owner",
        ),
        pytest.param(
            wanted("present"),
            found(content="any", group="daemon", gid=1),
            [UPDATE],
            id="attributes alone and another group",
        ),
        pytest.param(wanted("present"), ABSENT, [CREATE_EMPTY], id="attributes alone and absent"),
        pytest.param(wanted("present", source=""), found(content="any"), [], id="an empty source is none"),
    ],
)
def test_a_row_of_the_decision_table(properties: FileProperties, state: FileState, steps: list[str]) -> None:
    decision = ask(properties, state)

    assert decision.error is None
    assert [step.noop for step in decision.steps] == steps
    assert bool(decision.reason) is bool(steps)


@pytest.mark.parametrize(
    ("properties", "state", "message"),
    [
        pytest.param(
            wanted("present", content="x"),
            DIRECTORY,
            "/etc/motd exists as a directory; cannot manage it as a file",
            id="content and a directory",
        ),
        pytest.param(
            wanted("present"),
            DIRECTORY,
            "/etc/motd exists as a directory; cannot manage it as a file",
            id="attributes alone and a directory",
        ),
        pytest.param(
            wanted("directory"),
            found("directory", mode="0700", link="real"),
            "/etc/motd is a symlink to the directory real: mode mismatch: found 0700, wanted 0755, but attributes are not set "
            "through a symlink; manage the directory by its own path",
            id="directory and a link to one with another mode",
        ),
        pytest.param(
            wanted("present", source="/src"),
            found(content="x", source=SourceFile(path="/src", error="there is no such file")),
            "source /src: there is no such file",
            id="a source that is not there and a file",
        ),
    ],
)
def test_an_impossible_request_is_an_error_and_nothing_is_tried(
    properties: FileProperties, state: FileState, message: str
) -> None:
    decision = ask(properties, state)

    assert decision.steps == ()
    assert decision.error is not None
    assert decision.error.message == message


@pytest.mark.parametrize(
    ("properties", "state", "reason"),
    [
        pytest.param(wanted("absent"), found(), "it still exists: found present", id="still there"),
        pytest.param(wanted("present"), ABSENT, "it is absent, wanted present", id="not there"),
        pytest.param(wanted("directory"), found(), "found present, wanted directory", id="of another kind"),
        pytest.param(
            wanted("present", owner="daemon"),
            found(),
            "owner mismatch: found root, wanted daemon",
            id="owner",
        ),
        pytest.param(
            wanted("present", group="17"), found(), "group mismatch: found root, wanted 17", id="group"
        ),
        pytest.param(
            wanted("present", mode="600"), found(), "mode mismatch: found 0644, wanted 0600", id="mode"
        ),
        pytest.param(
            wanted("present"), UNREADABLE, "owner mismatch: found none, wanted root", id="nothing known"
        ),
    ],
)
def test_the_reason_names_the_differences(properties: FileProperties, state: FileState, reason: str) -> None:
    assert ask(properties, state).reason == reason


@pytest.mark.parametrize(
    ("owner", "name", "uid", "is_same"),
    [
        pytest.param("root", "root", 0, True, id="a name and the same name"),
        pytest.param("0", "root", 0, True, id="a number and the name of it"),
        pytest.param("000", "root", 0, True, id="noughts and the name of nought"),
        pytest.param("54321", "54321", 54321, True, id="a number that has no name"),
        pytest.param("0054321", "54321", 54321, True, id="with leading noughts"),
        pytest.param("5", "0", 0, False, id="another number"),
        pytest.param("0", "0", 5, False, id="digits are never a name"),
        pytest.param("daemon", "root", 0, False, id="another name"),
    ],
)
def test_owners_are_compared_by_number_when_a_number_is_wanted(
    owner: str, name: str, uid: int, is_same: bool
) -> None:
    decision = ask(wanted("present", owner=owner), found(owner=name, uid=uid))

    assert (decision.steps == ()) is is_same


def properties(**changes: Any) -> FileProperties:
    return FileProperties(**{"name": "/etc/motd", "ensure": "present", "content": "x", **RIGHT, **changes})


@pytest.mark.parametrize(
    "right",
    [
        pytest.param(properties(), id="content"),
        pytest.param(properties(content=None, source="files/motd"), id="a relative source"),
        pytest.param(properties(content=None), id="attributes alone"),
        pytest.param(properties(mode="644"), id="a mode of three digits"),
        pytest.param(properties(mode="0o644"), id="a mode with 0o"),
        pytest.param(properties(name="/"), id="the root directory"),
        pytest.param(properties(name="/etc/..."), id="three dots are a name"),
        pytest.param(FileProperties(name="/a", ensure="absent"), id="absent needs no attributes"),
        pytest.param(FileProperties(name="/a", ensure="absent", force=True), id="absent with force"),
        pytest.param(
            FileProperties(name="/", ensure="absent"), id="the root directory cannot be removed without force"
        ),
    ],
)
def test_valid_properties_pass(right: FileProperties) -> None:
    check(right)


@pytest.mark.parametrize(
    ("wrong", "field", "message"),
    [
        pytest.param(
            properties(name="etc/motd"),
            "name",
            "the path of a file must be absolute, but `etc/motd` does not begin with a slash",
            id="a relative path",
        ),
        pytest.param(
            properties(name="/etc/../motd"),
            "name",
            "the path of a file must be canonical: write `/motd` for `/etc/../motd`",
            id="two dots",
        ),
        pytest.param(
            properties(name="/etc/./motd"),
            "name",
            "the path of a file must be canonical: write `/etc/motd` for `/etc/./motd`",
            id="one dot",
        ),
        pytest.param(
            properties(name="//etc/motd"),
            "name",
            "the path of a file must be canonical: write `/etc/motd` for `//etc/motd`",
            id="two slashes first",
        ),
        pytest.param(
            properties(name="/etc//motd"),
            "name",
            "the path of a file must be canonical: write `/etc/motd` for `/etc//motd`",
            id="two slashes",
        ),
        pytest.param(
            properties(name="/etc/"),
            "name",
            "the path of a file must be canonical: write `/etc` for `/etc/`",
            id="a slash at the end",
        ),
        pytest.param(
            properties(mode="rw-r--r--"),
            "mode",
            'mode `rw-r--r--` is not an octal number: write three or four digits from 0 to 7, such as "0644"',
            id="a mode in letters",
        ),
        pytest.param(
            properties(mode="0888"),
            "mode",
            'mode `0888` is not an octal number: write three or four digits from 0 to 7, such as "0644"',
            id="a mode with an eight",
        ),
        pytest.param(
            properties(mode="64"),
            "mode",
            'mode `64` is not an octal number: write three or four digits from 0 to 7, such as "0644"',
            id="a mode of two digits",
        ),
        pytest.param(
            properties(mode="4755"),
            "mode",
            "mode `4755` exceeds 0777: setuid, setgid and sticky bits cannot be managed",
            id="setuid",
        ),
        pytest.param(
            FileProperties(name="/a", ensure="absent", mode="0999"),
            "mode",
            'mode `0999` is not an octal number: write three or four digits from 0 to 7, such as "0644"',
            id="a mode where none is needed",
        ),
        pytest.param(
            properties(force=True),
            "force",
            "`force: true` is only valid with `ensure: absent`, not with `ensure: present`",
            id="force with present",
        ),
        pytest.param(
            properties(ensure="directory", content=None, force=True),
            "force",
            "`force: true` is only valid with `ensure: absent`, not with `ensure: directory`",
            id="force with directory",
        ),
        pytest.param(
            FileProperties(name="/", ensure="absent", force=True),
            "force",
            "`force: true` cannot be used with the root of the file system",
            id="force with the root directory",
        ),
        pytest.param(
            properties(source="/src"),
            "source",
            "`content` and `source` are mutually exclusive: remove one of them",
            id="content and source",
        ),
        pytest.param(
            properties(content="", source="/src"),
            "source",
            "`content` and `source` are mutually exclusive: remove one of them",
            id="empty content and source",
        ),
        pytest.param(
            properties(owner=""),
            "owner",
            "`owner` cannot be empty: every file needs an explicit owner",
            id="no owner",
        ),
        pytest.param(
            properties(group=""),
            "group",
            "`group` cannot be empty: every file needs an explicit group",
            id="no group",
        ),
        pytest.param(
            properties(mode=""),
            "mode",
            "`mode` cannot be empty: every file needs an explicit mode",
            id="no mode",
        ),
        pytest.param(
            FileProperties(name="/d", ensure="directory", owner="root", group="root"),
            "mode",
            "`mode` cannot be empty: every file needs an explicit mode",
            id="no mode for a directory",
        ),
    ],
)
def test_an_invalid_combination_is_refused(wrong: FileProperties, field: str, message: str) -> None:
    with pytest.raises(PropertyError) as caught:
        check(wrong)

    assert caught.value.message == message
    assert caught.value.place is not None
    assert caught.value.place.path == f"$.{field}"


@pytest.mark.parametrize(
    ("source", "settled"),
    [
        ("./src/.././x", "x"),
        ("files/motd", "files/motd"),
        ("/a//b/../c", "/a/c"),
        ("../up", "../up"),
        ("", ""),
    ],
)
def test_the_dots_of_a_source_are_resolved_as_written(source: str, settled: str) -> None:
    one = properties(content=None, source=source)

    finalize(one)

    assert one.source == settled
