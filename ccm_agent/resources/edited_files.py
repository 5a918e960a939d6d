"""
Shared code of the types that change a part of a file: properties, state, checks, decision and undo. No I/O.

`file_editor.py` reads and writes the files.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from ccm_agent.model.errors import FileError, PropertyError
from ccm_agent.model.formats.field_rules import RunsCommand
from ccm_agent.model.formats.shellwords import split_words
from ccm_agent.model.records.undo import EarlierState, Identity, KeepFile, was_symlink
from ccm_agent.model.resource import ABSENT, PRESENT, CommonProperties, CommonState
from ccm_agent.model.resource_diff import ShowLines
from ccm_agent.resources.checks import canonical_path, refuse
from ccm_agent.resources.contract import Decision, DecisionContext, HostAccess, Step

NEW_MODE, NEW_SECRET_MODE = 0o644, 0o600
"""The mode of a new file, without and with `sensitive: true`."""
PLACEHOLDER = "%s"
"""The placeholder in `validate` for the file with the new content."""
NAME_LENGTH, PATH_LENGTH = 255, 4095
_FILE_TYPE = "file"
"""The type that restores a file when a change is undone."""


class EditedProperties(CommonProperties, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The properties of a file that is changed, and the options of the change."""

    name: Annotated[str, Meta(description="Absolute path of the file, or any name if `path` is given.")]
    path: Annotated[
        str,
        Meta(description="Absolute path of the file. Default: the name."),
    ] = ""
    ensure: Annotated[str, Meta(description="`present` (default) or `absent`.")] = ""
    create: Annotated[bool, Meta(description="Create a missing file, which is otherwise an error.")] = False
    validate: Annotated[
        str,
        RunsCommand,
        Meta(
            description="Command that checks the new content before the file is replaced. `%s` is a temporary file in the same "
            "directory. No shell; it must exit with 0 within a minute."
        ),
    ] = ""
    diff: ShowLines = False

    @property
    def file(self) -> str:
        """The path of the file."""
        return self.path or self.name


class EditedFile(Struct, kw_only=True, omit_defaults=True):
    """
    A file and its desired content.

    Attributes:
        path: The path of the file.
        owner, group, mode: The same as in the `file` type; "" if the file does not exist.
        uid, gid: The numbers of owner and group; -1 if the file does not exist.
        link: The target of a symlink; "" if the file is not a symlink.
        checksum, size: SHA-256 in hex and size of the content; "" if the file does not exist or cannot be read.
        desired_checksum, desired_size: The same values for the content after the change; "" if the file does not exist and is
            not created.
        is_missing: Whether the file does not exist.
        error: The reason why the content cannot be read or changed.
    """

    path: str
    owner: str = ""
    group: str = ""
    mode: str = ""
    uid: int = -1
    gid: int = -1
    link: str = ""
    checksum: str = ""
    size: int = 0
    desired_checksum: str = ""
    desired_size: int = 0
    is_missing: bool = False
    error: str = ""


class EditedState(CommonState, kw_only=True):
    """
    The state of a partly managed file. `ensure` is the desired value if the managed part is in its desired state, otherwise
    the opposite value.
    """

    file: EditedFile


def check_path(wanted: EditedProperties) -> None:
    """Refuse a path that is not absolute and canonical, or a name that spans several lines."""
    if not wanted.name.isprintable():
        refuse("the name contains line breaks or other control characters", "name")
    field, path = ("path", wanted.path) if wanted.path else ("name", wanted.name)
    if not path.isprintable():
        refuse("the path of the file contains line breaks or other control characters", field)
    if not path.startswith("/"):
        hint = "" if wanted.path else "; set `path` if this is not the path of the file"
        refuse(
            f"the path of the file must be absolute, but `{path}` does not begin with a slash{hint}", field
        )
    canonical = canonical_path(path)
    if canonical != path:
        refuse(f"the path of the file must be canonical: write `{canonical}` for `{path}`", field)
    if len(path) > PATH_LENGTH or any(
        len(part.encode(errors="replace")) > NAME_LENGTH for part in path.split("/")
    ):
        refuse(
            f"the path of the file is too long: at most {PATH_LENGTH} bytes, {NAME_LENGTH} for each name",
            field,
        )
    if path == "/":
        refuse("`/` is a directory, not a file", field)


def check_validate(wanted: EditedProperties) -> None:
    """Refuse a command that does not run a program on the file with the new content."""
    if wanted.validate:
        try:
            words = split_words(wanted.validate)
        except PropertyError as err:
            refuse(f"`validate` must be shell words: {err.message}", "validate")
        if "\0" in wanted.validate:
            refuse("`validate` contains a NUL character", "validate")
        if not words or PLACEHOLDER in words[0]:
            refuse("`validate` must begin with a program, such as `sshd -t -f %s`", "validate")
        if not any(PLACEHOLDER in word for word in words):
            refuse(
                f"`validate` must contain `{PLACEHOLDER}`, the placeholder for the path of the new content",
                "validate",
            )


def reach(wanted: EditedProperties) -> HostAccess:
    """Return the host objects that the resource accesses; see `ResourceType`."""
    return HostAccess(paths=(wanted.file,))


def decide(wanted: EditedProperties, found: EditedState, context: DecisionContext) -> Decision:
    """Decide the steps for the types that change a part of a file."""
    file = found.file
    if file.is_missing and file.error and context.noop and wanted.require:
        return Decision(
            steps=(Step(noop="Would have edited the file, which does not exist yet", action=_nothing),)
        )
    if file.error:
        return Decision(error=FileError(f"{file.path}: {file.error}"))
    if file.checksum == file.desired_checksum:
        return Decision()
    noop = "Would have created the file" if file.is_missing else "Would have edited the file"
    return Decision(
        steps=(Step(noop=noop, action=lambda p: p.store(wanted, file)),),
        reason="the file does not have the desired content",
        contents=lambda p: p.compare(wanted, file),
    )


async def _nothing(provider: object) -> None:
    """Do nothing. Only a plan has this step."""


async def earlier(
    wanted: EditedProperties, found: EditedState, decision: Decision, keep: KeepFile
) -> EarlierState:
    """Return the file before a change; see `UndoRules`. All changes of a file in one run are undone together."""
    file = found.file
    if file.is_missing and not file.link:
        return EarlierState(type=_FILE_TYPE, name=file.path, properties={"ensure": ABSENT})
    if file.link:
        return was_symlink(file.link)
    kept = await keep(file.path, with_content=True)
    return kept.as_state(type_name=_FILE_TYPE, name=file.path)


def identify(state: EditedState) -> Identity:
    """Return the identity of a state. The type `file`, which restores the state, has the same identity."""
    file = state.file
    if file.is_missing:
        return {"ensure": ABSENT, "link": file.link}
    return {
        "ensure": PRESENT,
        "link": file.link,
        "content": file.checksum or None,
        "owner": str(file.uid),
        "group": str(file.gid),
        "mode": file.mode,
    }
