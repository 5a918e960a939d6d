"""Warnings that a schedule or an assignment will repeat the changes that a run makes or undoes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from ccm_agent.clikit.text import fold_names, plural


def format_starter(cause: str, origin: str, nodes: Collection[str]) -> str:
    """Warn that the schedule or assignment (`cause`) that started a run will repeat its changes on these nodes."""
    if cause == "schedule":
        return f"the schedule {origin} applies this again when it is due; `ccmctl schedule rm {origin}` removes it"
    return (
        f"{fold_names(nodes)}: the assignment {origin} applies this again at the next interval; to prevent that, "
        f"`ccmctl rollback {origin}` or `ccmctl unassign {origin}` first"
    )


def format_assigned(managed: Mapping[str, Sequence[tuple[str, Collection[str]]]]) -> Iterator[str]:
    """Warn about resources that assignments manage. `managed` contains each resource with its nodes, by the assignment's name."""
    for name, found in managed.items():
        on = fold_names({node for _, nodes in found for node in nodes})
        more = f" and {plural(len(found) - 1, 'more resource')}" if len(found) > 1 else ""
        yield (
            f"{found[0][0]}{more}: the assignment {name} applies this again on {on} at the next interval; "
            f"to change it permanently, `ccmctl assign {name} ...`"
        )
