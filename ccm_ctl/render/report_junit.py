"""Format a run as a JUnit file for CI pipelines: a test suite per node, and a test case per resource that was not stable."""

from __future__ import annotations

from xml.etree import ElementTree

from ccm_agent.clikit.text import safe
from ccm_agent.model.outcome import Outcome, TransactionEvent
from ccm_agent.model.wire import FAILED_STATES, NodeState
from ccm_ctl.render.report_page import OUTPUT_LIMIT, ReportedNode, ReportedRun, strip_noncharacters

_SUCCESS = (NodeState.STABLE, NodeState.CHANGED)


def render_junit(page: ReportedRun) -> str:
    """Return the file as text."""
    root = ElementTree.Element("testsuites", name=_text(page.heading[0]))
    for one in page.nodes:
        root.append(_suite(one))
    for name in ("tests", "failures", "errors", "skipped"):
        root.set(name, str(sum(int(suite.get(name, "0")) for suite in root)))
    root.set("time", f"{max((one.seconds for one in page.nodes), default=0):.3f}")
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _suite(one: ReportedNode) -> ElementTree.Element:
    suite = ElementTree.Element("testsuite", name=_text(one.node), time=f"{one.seconds:.3f}")
    session = ElementTree.SubElement(
        suite, "testcase", classname=_text(one.node), name="session", time=f"{one.seconds:.3f}"
    )
    if one.state in FAILED_STATES:
        _add(session, "failure", str(one.state), one.reason)
    elif one.state not in _SUCCESS:
        _add(session, "error", str(one.state), one.reason)
    for event in one.events:
        suite.append(_case(one.node, event))
    for kind, name in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        suite.set(name, str(sum(case.find(kind) is not None for case in suite)))
    suite.set("tests", str(len(suite)))
    return suite


def _case(node: str, event: TransactionEvent) -> ElementTree.Element:
    name = f"{event.type}#{event.name}"
    case = ElementTree.Element(
        "testcase",
        classname=_text(node),
        name=_text(f"{event.parent} > {name}" if event.parent else name),
        time=f"{event.duration / 1e9:.3f}",
    )
    if event.failed or event.outcome is Outcome.UNMET:
        _add(case, "failure", str(event.outcome), "\n".join(event.error or event.unmet_requirements))
    elif event.skipped:
        _add(case, "skipped", str(event.outcome), "")
    if event.output.strip():
        ElementTree.SubElement(case, "system-out").text = _text(event.output[-OUTPUT_LIMIT:])
    return case


def _add(case: ElementTree.Element, kind: str, message: str, body: str) -> None:
    element = ElementTree.SubElement(case, kind, message=_text(message))
    if body:
        element.text = _text(body)


def _text(raw: str) -> str:
    """Return a text in which characters that XML does not allow are shown as codes."""
    return strip_noncharacters(safe(raw))
