"""The lines that a revision of an assignment changed, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.dashboard.conftest import SCRIPT, Site, context_of, looks_well_everywhere
from tests.support.fleet import fleet

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

MANIFEST = """\
# {note}
data: {{db_password: {secret}}}
ccm:
  resources:
    - exec:
        - greet: {{command: "echo {word}"}}
"""


@pytest.fixture(scope="module")
def revised(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """An assignment with two revisions. A comment in the second one is hostile."""
    with fleet(tmp_path_factory.mktemp("revised")) as built:
        built.add("web1", interval="1h")
        for note, word, secret in (("plain", "hello", "planted1"), (SCRIPT, "goodbye", "planted2")):
            path = built.write("greet.yaml", MANIFEST.format(note=note, word=word, secret=secret))
            done = built.ctl("assign", "greet", path, "--all", "--yes", "--message", word)
            assert done.code == 0, done.err
        made = Site(built)
        made.serve()
        yield made


@pytest.fixture
def lines(browser: Browser, revised: Site) -> Iterator[Page]:
    """The page of the assignment, signed in."""
    with context_of(browser, storage_state=revised.signed_in(browser)) as context:
        page = context.new_page()
        page.goto(f"{revised.address}/assignments/greet?scope=all")
        yield page


def test_the_page_shows_the_lines_that_a_revision_changed(lines: Page) -> None:
    lines.get_by_role("button", name="show changes of revision 2").click()
    section = lines.get_by_role("region", name="Changes of revision 2")

    expect(section.locator(".sub")).to_have_text("compared with revision 1")
    expect(section.locator(".del").filter(has_text="echo hello")).to_have_count(1)
    expect(section.locator(".add").filter(has_text="echo goodbye")).to_have_count(1)
    expect(section.locator(".add").filter(has_text=SCRIPT)).to_have_text(f"+# {SCRIPT}")
    assert lines.evaluate("document.querySelectorAll('main img, main script').length") == 0
    assert lines.title() != "owned"
    assert "planted" not in lines.content()
    looks_well_everywhere(lines)


def test_the_page_shows_what_a_rollback_would_change(lines: Page) -> None:
    expect(lines.get_by_role("button", name="preview rollback to revision 2")).to_have_count(0)
    lines.get_by_role("button", name="preview rollback to revision 1").click()
    section = lines.get_by_role("region", name="Changes by a rollback to revision 1")

    expect(section.locator(".del").filter(has_text="echo goodbye")).to_have_count(1)
    expect(section.locator(".add").filter(has_text="echo hello")).to_have_count(1)
    expect(section).to_contain_text("ccmctl rollback greet --to 1 --scope all")
    assert "rollback=1" in lines.url
