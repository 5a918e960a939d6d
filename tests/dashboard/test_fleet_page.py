"""The Fleet page in a real browser, on real agents."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.dashboard.conftest import SCRIPT, Site, context_of, looks_well_everywhere, serious
from tests.support.fleet import a_file, manifest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]


@pytest.fixture
def page(page: Page, site: Site) -> Page:
    """The Fleet page, with nodes whose last run was well, whatever other tests have run on them."""
    done = site.fleet.ctl("exec", "-t", "node=web*", "--yes", "--", "true")
    assert done.code == 0, done.err
    page.goto(site.address)
    page.wait_for_selector("header")
    return page


def row(page: Page, node: str):
    return page.locator(".heat-map .body [role=row]").filter(has_text=re.compile(rf"^{node}"))


def test_nodes_are_shown_with_the_state_of_each_assignment(page: Page) -> None:
    expect(row(page, "web1")).to_contain_text("converged")
    expect(row(page, "db1")).to_contain_text("failed")
    expect(row(page, "old1")).to_contain_text("never seen")
    expect(row(page, "db1").locator(".heat.bad")).to_have_count(1)
    expect(page.get_by_role("columnheader", name="database")).to_be_visible()


def test_the_page_opens_with_what_needs_attention(page: Page) -> None:
    attention = page.get_by_role("region", name="Needs attention")
    first = attention.get_by_role("listitem").first
    expect(first).to_contain_text("failed")
    expect(first).to_contain_text("ccmctl why db1")
    expect(attention.get_by_text("web1")).to_have_count(0)

    first.get_by_role("link").click()

    expect(page.get_by_role("heading", name="db1")).to_be_visible()
    expect(page.locator(".title .state")).to_contain_text("failed")


def test_filter_is_in_the_url_and_works_in_another_browser(page: Page) -> None:
    page.get_by_label("Nodes", exact=True).fill("role=web")
    page.get_by_label("Facts as columns").fill("role, host.info.os")
    page.get_by_role("button", name="Show").click()
    expect(row(page, "db1")).to_have_count(0)
    expect(row(page, "web1")).to_contain_text("linux")

    page.reload()

    assert "targets=role%3Dweb" in page.url
    expect(row(page, "web1")).to_contain_text("linux")
    expect(row(page, "db1")).to_have_count(0)


def test_an_expression_filters_and_a_mistake_is_explained(page: Page) -> None:
    page.get_by_label("Where").fill("Facts.role == 'db'")
    page.get_by_role("button", name="Show").click()
    expect(row(page, "web1")).to_have_count(0)
    expect(row(page, "db1")).to_have_count(1)

    page.get_by_label("Where").fill("")
    page.get_by_label("Nodes", exact=True).fill("role=wev")
    page.get_by_role("button", name="Show").click()

    expect(page.locator(".problem")).to_contain_text("did you mean role=web")


def test_a_state_is_chosen_by_its_count(page: Page) -> None:
    page.get_by_role("button", name="1 failed").click()

    expect(row(page, "db1")).to_have_count(1)
    expect(row(page, "web1")).to_have_count(0)
    assert "state=failed" in page.url


def test_events_and_states_come_by_themselves(page: Page, site: Site) -> None:
    expect(page.locator(".connection")).to_contain_text("live")
    path = site.fleet.write("one.yaml", manifest(a_file("seen-live")))

    assert site.fleet.ctl("apply", path, "--targets", "node=web2", "--yes").code == 0

    expect(page.locator(".events .text").filter(has_text="seen-live").first).to_be_visible()
    expect(row(page, "web2")).to_contain_text("changed")


def test_each_load_of_the_page_shows_that_it_is_connected(page: Page) -> None:
    """One load in three showed `connecting` until the next event: the connection opened between rendering and its effects."""
    for _ in range(15):
        page.reload()
        expect(page.locator(".connection")).to_contain_text("live")


def test_what_nodes_write_is_shown_as_text(page: Page) -> None:
    page.get_by_label("Facts as columns").fill("motto")
    page.get_by_role("button", name="Show").click()

    expect(row(page, "web1")).to_contain_text(SCRIPT)
    expect(row(page, "db1")).to_contain_text("migrate <script>")
    expect(page.locator(".events .text").filter(has_text="migrate <script>").first).to_be_visible()
    page.get_by_role("button", name="web1", exact=True).click()
    expect(page.get_by_role("region", name="Node web1")).to_contain_text(SCRIPT)
    assert page.title() == "Fleet · CCM fleet"
    assert page.locator("img[src=x], .heat-map script, .events script").count() == 0


def test_the_keyboard_alone_opens_and_closes_a_node(page: Page) -> None:
    expect(row(page, "web1")).to_have_count(1)
    page.get_by_role("button", name="db1", exact=True).focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("region", name="Node db1")).to_be_focused()

    page.keyboard.press("Escape")

    expect(page.get_by_role("region", name="Node db1")).to_have_count(0)


def test_the_time_line_is_brushed_with_the_keyboard(page: Page) -> None:
    slider = page.get_by_role("slider", name="From")
    slider.focus()
    for _ in range(5):
        page.keyboard.press("ArrowRight")

    expect(page.get_by_text("Events of the selected period")).to_be_visible()
    assert re.search(r"from=\d+&to=\d+", page.url)


def test_tables_are_saved_as_csv_and_json(page: Page, tmp_path: Path) -> None:
    expect(row(page, "web1")).to_have_count(1)
    with page.expect_download() as csv:
        page.get_by_role("button", name="CSV").first.click()
    with page.expect_download() as document:
        page.get_by_role("button", name="JSON").first.click()
    csv.value.save_as(tmp_path / "fleet.csv")
    document.value.save_as(tmp_path / "fleet.json")

    head, *rows = (tmp_path / "fleet.csv").read_text().splitlines()
    assert head.startswith("node,state,agent,heard,database,web,")
    assert [line.partition(",")[0] for line in rows] == ["db1", "old1", "web1", "web2"]
    assert [one["node"] for one in json.loads((tmp_path / "fleet.json").read_text())] == [
        "db1",
        "old1",
        "web1",
        "web2",
    ]


def test_axe_finds_nothing_serious(page: Page) -> None:
    page.get_by_role("button", name="db1", exact=True).click()

    looks_well_everywhere(page)


def test_a_dashboard_that_was_restarted_is_right_again_by_itself(browser: Browser, site: Site) -> None:
    other = Site(site.fleet)
    printed = other.serve()
    port = int(other.address.rpartition(":")[2])
    with context_of(browser) as context:
        page = context.new_page()
        page.goto(printed)
        expect(row(page, "web1")).to_have_count(1)
        other.stop()
        expect(page.locator(".connection")).to_contain_text("reconnecting")
        path = site.fleet.write("two.yaml", manifest(a_file("while-away")))
        assert site.fleet.ctl("apply", path, "--targets", "node=web1", "--yes").code == 0

        other.serve(port=port)

        expect(page.locator(".connection")).to_contain_text("live")
        expect(page.locator(".events .text").filter(has_text="while-away").first).to_be_visible()
    other.stop()


def test_a_used_address_asks_to_sign_in(browser: Browser, site: Site, page: Page) -> None:
    used = site.process.so_far.out.splitlines()[0] if site.process else ""
    with context_of(browser) as context:
        other = context.new_page()
        other.goto(used)

        expect(other.get_by_role("heading", name="Sign in")).to_be_visible()
        expect(other.get_by_role("alert")).to_contain_text("used or expired")
        assert serious(other) == []
