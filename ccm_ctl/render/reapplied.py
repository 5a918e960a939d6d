"""Warnings that a schedule or an assignment will apply again what a run changes or undoes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from ccm_agent.clikit.text import fold_names, plural


def format_starter(cause: str, origin: str, nodes: Collection[str]) -> str:
    """What started a run will do the same again on these nodes; `cause` is "schedule" or "assignment"."""
    if cause == "schedule":
        return (
            f"the schedule {origin} applies this again when it is due; `ccmctl schedule rm {origin}` ends it"
        )
    return (
        f"{fold_names(nodes)}: the assignment {origin} applies this again at the next interval; to prevent that, "
        f"`ccmctl rollback {origin}` or `ccmctl unassign {origin}` first"
    )


def format_assigned(managed: Mapping[str, Sequence[tuple[str, Collection[str]]]]) -> Iterator[str]:
    """Resources that assignments manage: by the assignment's name, each resource with the nodes that it is managed on."""
    for name, found in managed.items():
        on = fold_names({node for _, nodes in found for node in nodes})
        more = f" and {plural(len(found) - 1, 'more resource')}" if len(found) > 1 else ""
        yield (
            f"{found[0][0]}{more}: assigned by {name} on {on}, which converge on that again at the next interval; "
            f"to change it for good, `ccmctl assign {name} ...`"
        )
