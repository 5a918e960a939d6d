"""
Format a run as one self-contained HTML page. The page has no scripts and loads nothing. All text from nodes is escaped.

The content security policy allows only the page's own style sheet, which is identified by its digest. Even if text evaded the
escaping, it could not run, load or send anything.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from html import escape

from msgspec import Struct

from ccm_agent.clikit.diffs import diff_lines
from ccm_agent.clikit.table import Style
from ccm_agent.clikit.text import clock, plural, safe, span
from ccm_agent.model.noop_words import noop_words
from ccm_agent.model.outcome import TransactionEvent
from ccm_agent.model.wire import NodeState
from ccm_ctl.render.event import MEANINGS as OUTCOMES
from ccm_ctl.render.outcome import MEANINGS, state_word

OUTPUT_LIMIT = 64 * 1024
"""The maximum length of one command's output on the page."""

STYLE_SHEET = """
:root { color-scheme: light dark; --text: #1b1f24; --quiet: #59636e; --line: #d1d9e0; --page: #ffffff; --box: #f6f8fa;
  --good: #1a7f37; --change: #7d4e00; --bad: #cf222e; --gone: #8250df; }
@media (prefers-color-scheme: dark) { :root { --text: #e6edf3; --quiet: #9198a1; --line: #3d444d; --page: #0d1117;
  --box: #151b23; --good: #3fb950; --change: #d29922; --bad: #f85149; --gone: #ab7df8; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 72rem; padding: 1.5rem 1rem 4rem; background: var(--page); color: var(--text);
  font: 15px/1.5 system-ui, sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
p { margin: .25rem 0; } .quiet { color: var(--quiet); }
.good { color: var(--good); } .change { color: var(--change); } .bad { color: var(--bad); } .gone { color: var(--gone); }
.counts { display: flex; flex-wrap: wrap; gap: .5rem; margin: 1rem 0; padding: 0; list-style: none; }
.counts li { border: 1px solid var(--line); border-radius: .5rem; padding: .35rem .75rem; background: var(--box); }
.counts b { font-size: 1.25rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .35rem .75rem .35rem 0; border-bottom: 1px solid var(--line); }
th { font-weight: 600; color: var(--quiet); white-space: nowrap; } .number { white-space: nowrap; text-align: right; }
td { overflow-wrap: anywhere; min-width: 6rem; } td.number { min-width: 0; }
meter { width: 6rem; height: .75rem; vertical-align: middle; }
details { border: 1px solid var(--line); border-radius: .5rem; margin: .5rem 0; padding: .5rem .75rem; }
summary { cursor: pointer; font-weight: 600; } code, pre { font: 13px/1.45 ui-monospace, monospace; }
pre { background: var(--box); border: 1px solid var(--line); border-radius: .5rem; padding: .5rem .75rem; margin: .5rem 0;
  overflow-x: auto; white-space: pre-wrap; }
@media print { details { break-inside: avoid; } }
@media (max-width: 40rem) { .spare, thead { display: none; } body { padding: 1rem .75rem 3rem; }
  tr { display: block; padding: .5rem 0; border-bottom: 1px solid var(--line); }
  td { display: block; border: 0; padding: 0; } td:empty { display: none; } td.number { text-align: left; }
  td[data-label]::before { content: attr(data-label) " "; color: var(--quiet); } }
"""


class ReportedNode(Struct, frozen=True, kw_only=True):
    """
    One node's part in the run.

    Attributes:
        node, state, reason: The node's name, its state in the run, and the reason for that state.
        seconds: The duration of the session; 0 if unknown.
        stable: The number of stable resources.
        events: The events of other resources, in order.
        missing: The number of events that the node sent but that were not found.
        verdict: The result of verifying signatures; "" if these credentials cannot verify them.
    """

    node: str
    state: NodeState
    reason: str = ""
    seconds: float = 0
    stable: int = 0
    events: list[TransactionEvent] = []
    missing: int = 0
    verdict: str = ""


class ReportedRun(Struct, frozen=True, kw_only=True):
    """
    The content of a report.

    Attributes:
        run: The ID of the run.
        heading: The starter, the time and the nodes. Each is a line.
        counts: Nodes by state.
        plan: Whether the run was a plan, which changes nothing.
        nodes: The nodes.
        made: The time of the report.
    """

    run: str
    heading: list[str]
    counts: Mapping[NodeState, int]
    plan: bool
    nodes: Sequence[ReportedNode]
    made: datetime


def render_page(page: ReportedRun) -> str:
    """Return the page as text."""
    digest = base64.b64encode(hashlib.sha256(STYLE_SHEET.encode()).digest()).decode()
    title = text(page.heading[0])
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'\">",
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="referrer" content="no-referrer">',
        f"<title>{title}</title><style>{STYLE_SHEET}</style></head><body>",
        f"<h1>{title}</h1>",
        *(f'<p class="quiet">{text(line)}</p>' for line in page.heading[1:]),
        _counts(page),
        _nodes(page),
        *_details(page),
        f'<p class="quiet">Made {clock(page.made)} from run <code>{text(page.run)}</code>.</p>',
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def text(raw: str) -> str:
    """Make a text safe for the page. Control characters are shown as codes, and markup is escaped."""
    return escape(strip_noncharacters(safe(raw)), quote=True)


def strip_noncharacters(raw: str) -> str:
    """Remove U+FFFE and U+FFFF from a text, because XML documents must not contain them."""
    return raw.replace("\ufffe", "\\ufffe").replace("\uffff", "\\uffff")


def _counts(page: ReportedRun) -> str:
    items = [
        f'<li class="{MEANINGS.get(state, "")}"><b>{count}</b> {text(state_word(state, plan=page.plan))}</li>'
        for state, count in page.counts.items()
    ]
    return f'<ul class="counts">{"".join(items)}</ul>'


def _nodes(page: ReportedRun) -> str:
    longest = max((one.seconds for one in page.nodes), default=0)
    rows = "".join(_row(one, longest, plan=page.plan) for one in page.nodes)
    return (
        f'<h2>{plural(len(page.nodes), "node")}</h2><div class="wide"><table><thead><tr><th>Node</th><th>State</th>'
        '<th>Why</th><th class="number">Not stable</th><th class="number">Stable</th>'
        '<th class="number">Time</th><th class="spare">Share of the longest</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _row(one: ReportedNode, longest: float, *, plan: bool) -> str:
    name = text(one.node)
    linked = f'<a href="#{name}">{name}</a>' if _has_details(one) else name
    bar = (
        f'<meter min="0" max="{longest:.3f}" value="{one.seconds:.3f}">{span(one.seconds)}</meter>'
        if one.seconds and longest
        else ""
    )
    notes = [one.reason] if one.reason else []
    notes += [f"{plural(one.missing, 'event')} missing"] if one.missing else []
    notes += [one.verdict] if one.verdict in ("gap", "forged", "provisional") else []
    return (
        f'<tr><td>{linked}</td><td class="{MEANINGS.get(one.state, "")}">{text(state_word(one.state, plan=plan))}</td>'
        f'<td>{text("; ".join(notes))}</td><td class="number" data-label="not stable:">{len(one.events) or ""}</td>'
        f'<td class="number" data-label="stable:">{one.stable or ""}</td>'
        f'<td class="number" data-label="time:">{span(one.seconds) if one.seconds else ""}</td>'
        f'<td class="spare">{bar}</td></tr>'
    )


def _has_details(one: ReportedNode) -> bool:
    return bool(one.events)


def _details(page: ReportedRun) -> Iterable[str]:
    found = [one for one in page.nodes if _has_details(one)]
    if found:
        yield "<h2>Resources</h2>"
    for one in found:
        is_open = " open" if any(event.failed for event in one.events) else ""
        yield (
            f'<details id="{text(one.node)}"{is_open}><summary>{text(one.node)}: '
            f"{text(state_word(one.state, plan=page.plan))}</summary>"
            '<div class="wide"><table><thead><tr><th>Resource</th><th>Outcome</th><th>Note</th>'
            '<th class="number">Time</th></tr></thead><tbody>'
        )
        for event in one.events:
            yield _event(event)
        yield "</tbody></table></div></details>"


def _event(event: TransactionEvent) -> str:
    name = f"{event.type}#{event.name}"
    note = (
        "\n".join([noop_words(event)] if event.noop and event.noop_message else event.error) or event.pruned
    )
    output = event.output[-OUTPUT_LIMIT:]
    block = f"<pre>{text(output)}</pre>" if output.strip() else ""
    if diff := diff_lines(event, Style()):
        block = f"<pre>{text(diff)}</pre>{block}"
    return (
        f"<tr><td><code>{text(f'{event.parent} > {name}' if event.parent else name)}</code></td>"
        f'<td class="{OUTCOMES.get(event.outcome, "")}">{text(str(event.outcome))}</td>'
        f'<td>{text(note)}{block}</td><td class="number">{span(event.duration / 1e9)}</td></tr>'
    )
