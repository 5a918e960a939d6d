"""`ccmctl events --verify`: check that the stored events of nodes are authentic and complete."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from ccm_agent.clikit.table import Amount, Cell, Column
from ccm_agent.clikit.terminal import Terminal
from ccm_agent.clikit.text import counted, plural
from ccm_agent.model.errors import UsageError
from ccm_agent.model.exits import Exit
from ccm_agent.model.records.verdicts import BAD, NodeReport, Verdict
from ccm_ctl.app import Application
from ccm_ctl.fleet.nodes.discovery import TargetSpec, resolve
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.trust.authors import read_authors
from ccm_ctl.fleet.trust.verification import verify_nodes
from ccm_ctl.render.record_types.audit import MissingRange, VerificationLine
from ccm_ctl.render.verdicts import node_sentence

MEANINGS = {
    Verdict.VERIFIED: "good",
    Verdict.PROVISIONAL: "quiet",
    Verdict.UNSIGNED: "quiet",
    Verdict.GAP: "bad",
    Verdict.FORGED: "bad",
}


async def verify(
    application: Application, fleet: Fleet, node: str, targets: Sequence[str], since: datetime | None
) -> Exit:
    """
    Read the events of nodes, verify them, and report the result for each node.

    Args:
        application: Shows the result.
        fleet: The bus.
        node: The only node to verify; "" for the nodes of `targets`.
        targets: Selectors of nodes. Without any, all nodes are verified.
        since: Only events that were stored since this time are read; None for all stored events.

    Raises:
        UsageError: These credentials do not contain the trusted signers.
        NoTargetError: A selector matches no node.
    """
    authors = await read_authors(fleet)
    if authors is None:
        raise UsageError(
            "these credentials contain no root key, so nothing can be verified; use credentials of `ccmctl operator add` "
            "that were created after `ccmctl init --security`"
        )
    wish = TargetSpec(targets=(f"node={node}",) if node else tuple(targets), everybody=not (node or targets))
    _, resolved = await resolve(fleet, wish)
    reports = await verify_nodes(fleet, authors, resolved.nodes, since)
    _show(application, reports)
    return Exit.FAILED if any(report.is_bad for report in reports) else Exit.OK


def _show(application: Application, reports: Sequence[NodeReport]) -> None:
    terminal = application.terminal
    for report in reports:
        _print_record(terminal, report)
    columns = [
        Column("NODE", names=True),
        Column("VERDICT"),
        Column("EVENTS", right=True),
        Column("VERIFIED", right=True),
        Column("UP TO PLACE", right=True, spare=1),
        Column("OTHERS", fold=True),
    ]
    terminal.table(columns, [_row(report) for report in reports], "no node\n")
    for sentence in filter(None, map(node_sentence, reports)):
        terminal.note(sentence)
    if reports:
        terminal.show(f"\n{_last_line(reports)}\n")


def _print_record(terminal: Terminal, report: NodeReport) -> None:
    terminal.record(
        VerificationLine,
        node=report.node,
        verdict=str(report.verdict),
        events=report.events,
        counts={str(verdict): count for verdict, count in report.counts.items()},
        verified_to=report.verified_to or None,
        chain=report.chain or None,
        missing=[MissingRange(chain=each.chain, first=each.first, last=each.last) for each in report.missing]
        or None,
        missing_count=report.missing_count or None,
        given_up=report.given_up or None,
        changed=report.changed or None,
        copies=report.copies or None,
        reordered=report.reordered or None,
        doubled=report.doubled or None,
        reasons=report.reasons or None,
    )


def _row(report: NodeReport) -> list[str | Cell]:
    others = {
        str(verdict): count for verdict, count in report.counts.items() if verdict is not Verdict.VERIFIED
    }
    others |= {"missing": report.missing_count, "given up by the node": report.given_up}
    return [
        report.node,
        Cell(str(report.verdict), MEANINGS[report.verdict]),
        _number(report.events),
        _number(report.counts.get(Verdict.VERIFIED, 0)),
        _number(report.verified_to) if report.verified_to else "",
        counted(others),
    ]


def _number(count: int) -> Cell:
    return Cell("", amount=Amount(str(count), count))


def _last_line(reports: Sequence[NodeReport]) -> str:
    events = plural(sum(report.events for report in reports), "event")
    nodes = plural(len(reports), "node")
    bad = sum(report.verdict in BAD for report in reports)
    unsigned = sum(report.verdict is Verdict.UNSIGNED for report in reports)
    if bad:
        return f"{events} of {nodes}: those of {bad} are incomplete or not genuine"
    if unsigned:
        does = "does not sign its" if unsigned == 1 else "do not sign their"
        return f"{events} of {nodes}: {plural(unsigned, 'node')} {does} events"
    return f"{events} of {nodes}: genuine, and none is missing"
