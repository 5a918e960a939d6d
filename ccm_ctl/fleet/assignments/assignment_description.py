"""An assignment in lines of text, for lists and for the comparison of two revisions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ccm_agent.model.formats.durations import format_duration
from ccm_agent.model.formats.moments import format_moment

if TYPE_CHECKING:
    from ccm_agent.model.wire import Assignment
    from ccm_ctl.fleet.assignments.bundles import Inside

DIGEST_SHOWN = 12


def describe(assignment: Assignment, inside: Inside, documents: dict[str, int]) -> str:
    """Describe an assignment line by line, for a comparison. Files that are not text are shown by digest."""
    lines = [f"targets: {format_targets(assignment)}", f"manifest: {assignment.manifest}"]
    if assignment.commit:
        lines.append(f"commit: {format_commit(assignment)}")
    lines += [f"bundle: {short(assignment.bundle.digest)}"]
    digests = {path: digest for path, digest in inside.files.items() if path not in inside.texts}
    lines += [f"  {path}: {short(digest)}" for path, digest in sorted(digests.items())]
    lines += [
        f"data: {' '.join(assignment.data) or 'none but its own'}",
        f"data revision: {format_data_revision(assignment)}",
    ]
    lines += [f"  {key}: {revision}" for key, revision in sorted(documents.items())]
    lines += [f"mode: {assignment.mode}", f"interval: {format_interval(assignment)}"]
    if assignment.deadline:
        lines.append(f"deadline: {format_moment(assignment.deadline)}")
    return "\n".join(lines)


def format_targets(assignment: Assignment) -> str:
    """
    Return the targets of an assignment, as written. While a rollout deploys the first revision, its targets are returned.
    """
    from ccm_ctl.fleet.assignments.staging import NOWHERE

    if assignment.where == NOWHERE and assignment.next is not None:
        assignment = assignment.next
    words = " or ".join(assignment.targets) or "all"
    return f"{words} where {assignment.where}" if assignment.where else words


def format_data_revision(assignment: Assignment) -> str:
    """Return the data revision, or `newest` if the assignment follows the data."""
    return str(assignment.data_revision) if assignment.data_revision else "newest"


def format_commit(assignment: Assignment) -> str:
    """Return the git commit from which a manifest was assigned, and whether its directory differed from the commit."""
    return (
        f"{short(assignment.commit)}{' dirty' if assignment.commit_dirty else ''}"
        if assignment.commit
        else ""
    )


def format_interval(assignment: Assignment) -> str:
    """Return the interval at which nodes converge, as text."""
    return format_duration(assignment.interval_s) if assignment.interval_s else "the node's own"


def short(digest: str) -> str:
    """Shorten a digest for display."""
    return digest[:DIGEST_SHOWN]
