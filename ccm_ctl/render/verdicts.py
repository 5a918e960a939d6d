"""Describe the problems with the events of nodes, in one sentence per node."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ccm_agent.clikit.text import one_line, plural
from ccm_agent.model.records.verdicts import NodeReport, PartReport, Verdict

RANGES_SHOWN = 5
"""The maximum number of ranges in a sentence."""

REASONS_SHOWN = 3
"""The maximum number of reasons in a sentence."""

CHAIN_SHOWN = 6
"""The number of characters that are shown of a chain's ID. They are enough to distinguish the chains of one node."""


def part_sentence(report: PartReport, numbers: Sequence[int] = ()) -> str:
    """
    Describe the problem with a node's part in a run; "" if there is none.

    Args:
        report: The result of the verification.
        numbers: The numbers of events that are missing or not proven, in ascending order.
    """
    parts = []
    if report.verdict is Verdict.GAP:
        gone = report.missing - report.unproven
        where = f" ({_ranges(_joined(numbers))})" if numbers and not report.unproven else ""
        text = f"{plural(max(gone, 1), 'event')} of the run {_is(max(gone, 1))} missing or changed{where}"
        if report.unproven:
            text += f"; {report.unproven} before that cannot be verified"
        parts.append(text)
    if report.forged:
        left_out = plural(report.forged, "message")
        parts.append(f"{left_out} left out as not genuine: {_reasons(report.reasons)}")
    return one_line(f"{report.node}: {'; '.join(parts)}") if parts else ""


def node_sentence(report: NodeReport) -> str:
    """Describe the problem with all events of a node; "" if there is none."""
    parts = []
    if report.missing_count:
        chains = len({one.chain for one in report.missing}) > 1
        ranges = [(one.first, one.last, one.chain[:CHAIN_SHOWN] if chains else "") for one in report.missing]
        events = f"{plural(report.missing_count, 'event')} {_is(report.missing_count)}"
        parts.append(f"{events} missing from its chain ({_places(ranges, report.missing_count)})")
    if report.changed:
        changed = [(number, number, "") for number in sorted(report.changed)]
        events = f"{plural(len(report.changed), 'event')} {_was(len(report.changed))}"
        parts.append(f"{events} changed ({_places(changed, len(changed))})")
    if gap := report.counts.get(Verdict.GAP, 0) - len(report.changed) - report.doubled:
        parts.append(f"{plural(gap, 'event')} cannot be verified")
    if report.doubled:
        events = plural(report.doubled, "event")
        parts.append(
            f"{events} signed twice for one place (is its state a copy, or its key in use on another host?)"
        )
    if forged := report.counts.get(Verdict.FORGED, 0):
        parts.append(f"{plural(forged, 'event')} {_is(forged)} forged ({_reasons(report.reasons)})")
    if report.reordered:
        parts.append(f"{plural(report.reordered, 'event')} {_is(report.reordered)} stored out of order")
    return one_line(f"{report.node}: {', '.join(parts)}") if parts else ""


def _reasons(reasons: dict[str, int]) -> str:
    more = ", …" if len(reasons) > REASONS_SHOWN else ""
    return ", ".join(list(reasons)[:REASONS_SHOWN]) + more


def _joined(numbers: Sequence[int]) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return ranges


def _ranges(ranges: Iterable[tuple[int, int]]) -> str:
    named = [f"{first}-{last}" if last > first else str(first) for first, last in ranges]
    more = ", …" if len(named) > RANGES_SHOWN else ""
    return f"{_word(named)} {', '.join(named[:RANGES_SHOWN])}{more}"


def _word(named: Sequence[str]) -> str:
    return "number" if len(named) == 1 and "-" not in named[0] else "numbers"


def _places(ranges: Sequence[tuple[int, int, str]], count: int) -> str:
    named = [
        (f"{first}-{last}" if last > first else str(first)) + (f" of chain {chain}" if chain else "")
        for first, last, chain in ranges[:RANGES_SHOWN]
    ]
    more = ", …" if len(ranges) > RANGES_SHOWN else ""
    return f"{'place' if count == 1 else 'places'} {', '.join(named)}{more}"


def _is(count: int) -> str:
    return "is" if count == 1 else "are"


def _was(count: int) -> str:
    return "was" if count == 1 else "were"
