"""Decides the steps of a repository resource. No I/O."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from urllib.parse import urlsplit

from ccm_agent.model.errors import FileError, PropertyError
from ccm_agent.model.resource import ABSENT, PRESENT
from ccm_agent.model.resource_diff import PropertyChange
from ccm_agent.resources.contract import Decision, DecisionContext, HostAccess, Step
from ccm_agent.resources.repository.formats import FORMATS
from ccm_agent.resources.repository.model import (
    APT,
    DNF,
    FILE,
    TEXT,
    RepositoryFile,
    RepositoryProperties,
    RepositoryState,
)
from ccm_agent.resources.repository.openpgp import normal_fingerprint

_REPLACEABLE = ("absent", "file", "symlink")


def reach(wanted: RepositoryProperties) -> HostAccess:
    """
    Return the host objects that the resource accesses. If its properties do not imply the package manager, the objects for both
    are included.
    """
    managers = [wanted.provider] if wanted.provider in FORMATS else _managers(wanted)
    formats = [FORMATS[one] for one in managers]
    paths = [path for one in formats for path in (one.path(wanted.name), one.key_path(wanted.name))]
    remote = [one for one in (*wanted.uris, wanted.metalink, wanted.mirrorlist) if one]
    local = [urlsplit(one).path for one in remote if one.startswith("file:")]
    return HostAccess(
        paths=tuple(paths),
        reads=(
            *(one for one in remote if not one.startswith("file:")),
            *([wanted.key] if wanted.key and wanted.key_form != TEXT else []),
            *([wanted.signed_by] if wanted.signed_by else []),
        ),
        reads_trees=tuple(local),
    )


def _managers(wanted: RepositoryProperties) -> list[str]:
    if wanted.ensure == ABSENT:
        return [APT, DNF]
    return [APT] if wanted.suites else [DNF]


def decide(wanted: RepositoryProperties, found: RepositoryState, context: DecisionContext) -> Decision:
    """Decide the steps with the decision table of the repository type; see docs/resources/repository.md."""
    if wanted.ensure == ABSENT:
        return _removal(wanted, found)
    if problem := FORMATS[found.manager].problem(wanted) or _place_problem(found):
        return Decision(error=PropertyError(problem))
    is_planned = context.noop and wanted.key_form == FILE and bool(wanted.require)
    if found.key_error and not is_planned:
        return Decision(error=PropertyError(found.key_error))
    differences = list(_differences(wanted, found))
    if not differences:
        return Decision()
    refresh = wanted.refresh and wanted.enabled and any(is_content for _, is_content in differences)
    noop = (
        "Would have added the repository" if found.ensure == ABSENT else "Would have changed the repository"
    )
    return Decision(
        steps=(Step(noop=noop, action=lambda p: p.write(wanted, found, refresh=refresh)),),
        reason="; ".join(text for text, _ in differences),
        changes=tuple(_changes(wanted, found)),
        contents=lambda p: p.compare(wanted, found),
    )


def _removal(wanted: RepositoryProperties, found: RepositoryState) -> Decision:
    if found.ensure == ABSENT:
        return Decision()
    if found.file.kind not in _REPLACEABLE:
        return Decision(error=FileError(f"{found.file.path} is not a file: it is a {found.file.kind}"))
    if found.others:
        return Decision(error=FileError(_others_problem(found)))
    return Decision(
        steps=(Step(noop="Would have removed the repository", action=lambda p: p.remove(wanted, found)),),
        reason=f"{found.file.path} exists",
        changes=(PropertyChange(property="ensure", before=PRESENT, after=ABSENT),),
        contents=lambda p: p.compare(wanted, found),
    )


def _place_problem(found: RepositoryState) -> str:
    """Return the reason why the files cannot be written; "" if they can."""
    for file in (found.file, found.key_file):
        if file.kind not in _REPLACEABLE:
            return f"{file.path} is not a file: it is a {file.kind}"
    if found.others:
        return _others_problem(found)
    if found.also_in:
        return f"{found.also_in} also has a repository of this name: remove it there, or choose another name"
    return ""


def _others_problem(found: RepositoryState) -> str:
    return f"{found.file.path} has {found.others}, which would be lost: move it to another file first"


def _differences(wanted: RepositoryProperties, found: RepositoryState) -> Iterator[tuple[str, bool]]:
    """Yield each difference, and whether it affects the content. A different owner or mode needs no refresh."""
    desired = hashlib.sha256(FORMATS[found.manager].content(wanted)).hexdigest()
    yield from _file_differences(found.file, found.file.checksum == desired)
    if wanted.key:
        if found.desired_key_checksum:
            is_same = found.key_file.checksum == found.desired_key_checksum
        else:
            # if the key would have to be fetched, accept the existing file if it contains the same key in the form that this type
            # writes
            is_same = found.key != "" and found.key_fingerprint == normal_fingerprint(wanted.key_fingerprint)
        yield from _file_differences(found.key_file, is_same)


def _file_differences(file: RepositoryFile, is_same: bool) -> Iterator[tuple[str, bool]]:
    if file.kind != "file":
        yield f"{file.path} is {file.kind}, wanted a file", True
    elif not is_same:
        yield f"{file.path} has different content", True
    elif not file.is_public:
        yield f"{file.path} has mode {file.mode} and owner {file.uid}, wanted 0644 and 0", False


def _changes(wanted: RepositoryProperties, found: RepositoryState) -> Iterator[PropertyChange]:
    if found.ensure == ABSENT:
        yield PropertyChange(property="ensure", before=ABSENT, after=PRESENT)
    desired = normal_fingerprint(wanted.key_fingerprint) if wanted.key else ""
    if desired and desired != found.key_fingerprint:
        yield PropertyChange(property="key_fingerprint", before=found.key_fingerprint, after=desired)
