"""The studio on a real fleet, in a real browser: expressions on a node's facts, and a plan with diffs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.dashboard.conftest import SCRIPT, Site, context_of, serious

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

MANIFEST = """\
data: {greeting: "from {{ Facts.role }}"}
ccm:
  resources:
    - file:
        - "{{ Facts.files }}/studio":
            ensure: present
            content: "{{ lookup('data.greeting') }}\\n{{ Facts.motto }}\\n"
            owner: "0"
            group: "0"
            mode: "0644"
            diff: true
"""


@pytest.fixture
def acting(browser: Browser, site: Site) -> Iterator[Page]:
    """The Studio page of a user who may act, with a manifest on it."""
    site.fleet.write("studio/site.yaml", MANIFEST)
    served = Site(site.fleet)
    served.process = site.fleet.begin(
        "studio", str(site.fleet.directory / "studio"), "--port", "0", "--allow-actions"
    )
    site.fleet.wait_for(lambda: served.printed, "the studio to print its address")
    with context_of(browser) as context:
        page = context.new_page()
        page.goto(served.printed)
        page.get_by_label("File", exact=True).select_option("site.yaml")
        expect(page.locator(".findings")).to_contain_text("lint finds nothing")
        yield page
    served.stop()


def test_expressions_give_the_values_of_the_chosen_node(acting: Page) -> None:
    acting.get_by_label("Node", exact=True).fill("web1")
    acting.get_by_label("Expression").fill("Facts.role + '!'")

    expect(acting.locator(".fleet .result").first).to_have_text('"web!"')
    rendered = acting.locator(".rendered tbody")
    expect(rendered).to_contain_text("from web")
    expect(rendered).to_contain_text(SCRIPT)
    assert acting.title() == "Studio · CCM fleet"

    acting.get_by_label("Expression").fill("readFile('/etc/passwd')")
    expect(acting.locator(".fleet .bad").first).to_contain_text("evaluated there only")
    acting.evaluate("scrollTo(0, 0)")  # the header covers a part of what is below it
    assert serious(acting) == []


def test_a_plan_shows_what_would_change_and_changes_nothing(acting: Page, site: Site) -> None:
    acting.get_by_label("Nodes", exact=True).fill("role=web,node=web*")
    acting.get_by_label("Nodes", exact=True).press("Enter")

    expect(acting.locator(".planned [role=status]")).to_have_text("Done: 2 would change", timeout=60_000)
    blocks = acting.locator(".planned pre")
    expect(blocks.first).to_contain_text("+from web")
    acting.evaluate("scrollTo(0, 0)")  # the header covers a part of what is below it
    assert serious(acting) == []
    assert not (site.fleet.agents["web1"].files / "studio").exists()

    acting.get_by_role("button", name="Store as a bundle").click()
    expect(acting.locator(".fleet [role=status]").filter(has_text="Stored.")).to_contain_text(
        "ccmctl bundle get"
    )


def test_without_the_right_to_act_no_plan_is_offered(page: Page, site: Site) -> None:
    page.goto(f"{site.address}/studio")
    expect(page.get_by_role("heading", name="On a node")).to_be_visible()

    expect(page.get_by_role("button", name="Plan on these nodes")).to_have_count(0)
    expect(page.get_by_role("button", name="Download")).to_be_visible()
