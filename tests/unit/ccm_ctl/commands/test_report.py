"""`ccmctl report`: a page and a JUnit file, with texts from nodes that must do no harm in either."""

from __future__ import annotations

import re
import resource
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm_agent.model.wire import NodeState
from ccm_ctl.render.report_junit import render_junit
from ccm_ctl.render.report_page import ReportedNode, ReportedRun, render_page
from tests.support.controller import NOW, Desk, FakeNode, event

EVIL = "</pre><script>alert(1)</script><img src=x onerror=alert(1)>\"' ]]>\x1b[2J\x00\u202e\ufffe"


class Tags(HTMLParser):
    """The tags and attributes of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """See `HTMLParser`."""
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    path = tmp_path / "motd.yaml"
    path.write_text("ccm:\n  resources:\n    - exec: [{'true': {}}]\n")
    failed = event(EVIL, 2, failed=True, error=[EVIL], output=EVIL)
    desk = Desk(
        FakeNode("web1", {}, [failed, event("/etc/motd", 3)]),
        FakeNode("web2", {}, f"refused: {EVIL}"),
        FakeNode("web3", {}, is_present=False),
        FakeNode("web4", {}, []),
    )
    desk.ccmctl("apply", str(path), "--all", "--yes")
    return desk


def test_page_needs_no_other_file_and_escapes_text_of_nodes(desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "run.html"

    said = desk.ccmctl("report", "last", "--html", str(path))

    page = path.read_text()
    tags = Tags(page)
    assert (said.code, said.out) == (0, f"{path}: written\n")
    assert not tags.tags & {"script", "img", "link", "iframe", "object", "form", "base"}
    assert not [name for name in tags.attributes if name.startswith("on") or name in ("src", "style")]
    assert "default-src 'none'; style-src 'sha256-" in page
    assert "<script>alert" not in page
    assert not re.search(r"[\x00\x1b\u202e\ufffe]", page)
    for words in ("apply motd by op", "\\x1b[2J", "web1", "web4", "refused"):
        assert words in page


def test_junit_file_has_a_suite_for_each_node_and_a_case_for_each_resource(
    desk: Desk, tmp_path: Path
) -> None:
    path = tmp_path / "run.xml"

    said = desk.ccmctl("report", "last", "--junit", str(path), "--json")

    root = ElementTree.parse(path).getroot()
    assert said.records == [{"record": "made", "name": str(path), "kind": "report", "action": "created"}]
    assert {name: root.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "6",
        "failures": "3",
        "errors": "1",
        "skipped": "0",
    }
    assert [suite.get("name") for suite in root] == ["web1", "web2", "web3", "web4"]
    assert [case.get("name") for case in root[0]][2] == "file#/etc/motd"
    assert root[2].find("testcase/error") is not None


def test_report_without_a_file_is_refused(desk: Desk) -> None:
    said = desk.ccmctl("report", "last")

    assert (said.code, said.err) == (1, "ccmctl: name a file with --html or --junit\n")


def test_file_that_cannot_be_written_is_named(desk: Desk, tmp_path: Path) -> None:
    said = desk.ccmctl("report", "last", "--html", str(tmp_path / "no" / "run.html"))

    assert (said.code, said.err) == (
        1,
        f"ccmctl: {tmp_path / 'no' / 'run.html'}: cannot be written: No such file or directory\n",
    )


def test_a_report_is_replaced_whole_or_not_at_all_and_keeps_its_mode(desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "run.html"
    desk.ccmctl("report", "last", "--html", str(path))
    path.chmod(0o600)
    path.write_text("earlier")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, limits[1]))
    try:
        said = desk.ccmctl("report", "last", "--html", str(path))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    kept = path.read_text()

    again = desk.ccmctl("report", "last", "--html", str(path))

    assert (said.code, said.err) == (1, f"ccmctl: {path}: cannot be written: File too large\n")
    assert (again.code, kept, path.stat().st_mode & 0o777) == (0, "earlier", 0o600)
    assert [one.name for one in tmp_path.glob("*run.html*")] == ["run.html"]


def test_a_link_that_another_user_made_is_replaced_and_its_target_stays(desk: Desk, tmp_path: Path) -> None:
    path, target = tmp_path / "run.html", tmp_path / "target"
    target.write_text("mine")
    path.symlink_to(target)

    said = desk.ccmctl("report", "last", "--html", str(path))

    assert (said.code, target.read_text(), path.is_symlink()) == (0, "mine", False)


@given(st.text())
def test_any_text_of_a_node_gives_a_page_and_a_file_that_parse(text: str) -> None:
    node = ReportedNode(
        node="web1",
        state=NodeState.FAILED,
        reason=text,
        events=[event(text, 2, failed=True, error=[text], output=text)],
    )
    page = ReportedRun(
        run="3" * 27,
        heading=[f"run {text}", text],
        counts={NodeState.FAILED: 1},
        plan=False,
        nodes=[node],
        made=NOW,
    )

    shown = Tags(render_page(page))
    root = ElementTree.fromstring(render_junit(page))

    assert "script" not in shown.tags
    assert root.get("failures") == "2"
