"""Format the changes of a run: a block for each distinct diff, with the names of its nodes."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ccm_agent.clikit.diffs import diff_block
from ccm_agent.clikit.table import Style
from ccm_agent.clikit.text import fold_names, plural
from ccm_agent.model.outcome import TransactionEvent

BLOCKS_SHOWN = 500
"""The maximum number of different diffs that are shown. The others are only counted."""


def diff_blocks(events: Iterable[tuple[str, TransactionEvent]], style: Style) -> list[str]:
    """
    Return the blocks, in the order in which the resources were first reported. Nodes with equal diffs share a block.

    Args:
        events: Each event with its node. Events without a diff are left out.
        style: The width and color.
    """
    groups = group_diffs(events)
    shown = groups[:BLOCKS_SHOWN]
    blocks = [diff_block(event, style, before=f"{fold_names(nodes)}: ") for event, nodes in shown]
    if len(groups) > len(shown):
        rest = plural(len(groups) - len(shown), "other diff")
        blocks.append(f"and {rest}; `ccmctl run show RUN --json` has all\n")
    return blocks


def group_diffs(
    events: Iterable[tuple[str, TransactionEvent]],
) -> list[tuple[TransactionEvent, list[str]]]:
    """Return an event for each distinct diff, with its nodes, in the order in which the diffs were first reported."""
    groups: dict[tuple[object, ...], tuple[TransactionEvent, list[str]]] = {}
    for node, event in events:
        if event.diff is None:
            continue
        body = msgspec.json.encode(event.diff)
        key = (event.type, event.name, event.parent, event.noop, event.failed, event.cut, body)
        groups.setdefault(tuple(map(str, key)), (event, []))[1].append(node)
    return list(groups.values())
