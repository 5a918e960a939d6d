"""Warnings about a run of a part of a manifest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ccm_agent.clikit.text import fold_names, one_line

SHOWN = 3
"""Requirements that one warning names."""


def format_left_out(reported: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """What applied resources need and the run left out, by node: one sentence for all nodes that report the same."""
    names: dict[tuple[str, ...], list[str]] = {}
    for node, left_out in sorted(reported.items()):
        if left_out:
            names.setdefault(tuple(left_out), []).append(node)
    for needs, reported_by in names.items():
        more = f"; and {len(needs) - SHOWN} more" if len(needs) > SHOWN else ""
        shown = "; ".join(one_line(need) for need in needs[:SHOWN])
        yield f"left out on {fold_names(reported_by)}, though needed: {shown}{more}"
