"""Decides the steps of a scaffold resource. No I/O."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from typing import Any

from ccm_agent.model.errors import CommandError, DesiredStateError, DocumentError
from ccm_agent.model.formats.urls import mask_url
from ccm_agent.model.resource import ABSENT
from ccm_agent.resources.checks import check_each, refuse
from ccm_agent.resources.contract import Decision, DecisionContext, HostAccess, Step
from ccm_agent.resources.scaffold.model import (
    DEFAULT_ENGINE,
    DELIMITERS,
    ScaffoldMetadata,
    ScaffoldProperties,
    ScaffoldState,
)

JINJA_MARKS = ("{%", "%}", "{#", "#}")


def check(wanted: ScaffoldProperties) -> None:
    """Refuse invalid properties, and set the default engine and delimiters."""
    check_each(wanted, _check_name, _check_purge, _check_source, _check_engine, _check_post, _check_timeout)


def _check_name(wanted: ScaffoldProperties) -> None:
    name = wanted.name
    if not name.startswith("/"):
        refuse(f"`name` must be an absolute path, not `{name}`", "name")
    if posixpath.normpath(name) != name or name.startswith("//"):
        refuse(f"`name` must be a path without `.`, `..` and a slash at its end, not `{name}`", "name")


def _check_purge(wanted: ScaffoldProperties) -> None:
    if wanted.purge and wanted.name == "/":
        refuse("`purge` would remove everything on this host", "purge")


def _check_source(wanted: ScaffoldProperties) -> None:
    if not wanted.source:
        refuse("`source` cannot be empty: name the directory of templates", "source")


def check_when_applied(wanted: ScaffoldProperties, written: Mapping[str, Any]) -> None:
    """Refuse a source that is a URL; see `ResourceType`."""
    if "://" in wanted.source:
        refuse(
            f"cannot read source directory: stat {mask_url(wanted.source)}: no such file or directory; "
            "`source` cannot be a URL: fetch it with an `archive` resource first",
            "source",
        )


def _check_engine(wanted: ScaffoldProperties) -> None:
    if not wanted.engine:
        wanted.engine = DEFAULT_ENGINE
    if wanted.engine not in DELIMITERS:
        refuse(f"`engine` must be one of {', '.join(DELIMITERS)}, not `{wanted.engine}`", "engine")
    left, right = DELIMITERS[wanted.engine]
    wanted.left_delimiter = wanted.left_delimiter or left
    wanted.right_delimiter = wanted.right_delimiter or right
    if wanted.engine == "jinja":
        for field in ("left_delimiter", "right_delimiter"):
            if getattr(wanted, field) in JINJA_MARKS:
                refuse(
                    f"`{field}` cannot be one of {' '.join(JINJA_MARKS)}, which have another meaning", field
                )


def _check_post(wanted: ScaffoldProperties) -> None:
    for entry in wanted.post:
        if len(entry) != 1:
            refuse("each entry of `post` must be one glob with its command: begin each with `- `", "post")
        for glob, command in entry.items():
            if not glob:
                refuse("a glob in `post` cannot be empty", "post")
            if not command.strip():
                refuse(f"the command of `{glob}` in `post` cannot be empty", "post")


def _check_timeout(wanted: ScaffoldProperties) -> None:
    if not wanted.timeout:
        return
    try:
        limit_s = wanted.post_limit_s
    except DocumentError as err:
        refuse(err.message, "timeout")
    if limit_s <= 0:
        refuse(f"`timeout` must be more than 0, not `{wanted.timeout}`", "timeout")


def find_extensions(written: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Find extensions of Choria CCM in properties as written; see `ResourceType`."""
    if not written.get("engine"):
        yield "engine", "requires an `engine`"


def reach(wanted: ScaffoldProperties) -> HostAccess:
    """
    Return the host objects that the resource accesses. This includes the whole directory, because templates and commands
    determine its files.
    """
    return HostAccess(trees=(wanted.name,), reads_trees=(wanted.source,) if wanted.source else ())


def decide(wanted: ScaffoldProperties, found: ScaffoldState, context: DecisionContext) -> Decision:
    """Decide the steps with the stability table of the scaffold type; see docs/resources/scaffold.md."""
    metadata = found.metadata
    if wanted.ensure == ABSENT:
        return _decide_absent(wanted, metadata)
    if not metadata.changed and not metadata.stable:
        return _decide_nothing(wanted, metadata, context)
    if metadata.failing and context.noop:
        files = ", ".join(metadata.failing)
        return Decision(
            error=CommandError(
                f"a `post` command failed in an earlier run on the rendered {files}, and noop does not run it: apply to try again"
            )
        )
    purged = [path for path in metadata.purged if path != wanted.name] if wanted.purge else []
    pending = len(metadata.changed) + len(purged)
    # a template may render differently each time, so the provider reports whether the rendered content was written
    if not pending or context.verifying:
        return Decision()
    noop = f"Would have changed {pending} scaffold files"
    step = Step(noop=noop, action=lambda p: p.render(wanted))
    return Decision(steps=(step,), contents=lambda p: p.compare(wanted))


def _decide_absent(wanted: ScaffoldProperties, metadata: ScaffoldMetadata) -> Decision:
    left = len(metadata.changed) + len(metadata.stable)
    if not metadata.target_exists or not left:
        return Decision()
    step = Step(noop=f"Would have removed {left} scaffold files", action=lambda p: p.remove(wanted))
    return Decision(
        steps=(step,),
        reason=f"{left} of its files still exist",
        contents=lambda p: p.compare(wanted),
    )


def _decide_nothing(
    wanted: ScaffoldProperties, metadata: ScaffoldMetadata, context: DecisionContext
) -> Decision:
    """Return the steps if nothing is rendered. This is a failure, but the directory is created first, as in Choria CCM."""
    reason = metadata.reason or "no rendered file exists"
    if context.noop:
        return Decision(error=DesiredStateError(f"failed to reach desired state {wanted.ensure}: {reason}"))
    return Decision(steps=(Step(noop="", action=lambda p: p.render(wanted)),), reason=reason)
