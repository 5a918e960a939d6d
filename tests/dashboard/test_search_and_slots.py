"""The search of events of any time, and slots and locks, in a real browser."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import Page, expect

from tests.dashboard.conftest import SCRIPT, Site, looks_well_everywhere
from tests.support.fleet import a_file, manifest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def held(site: Site) -> Site:
    """A slot that db1 keeps after a failure, and a lock; their texts are hostile."""
    failing = ("exec", f"restart {SCRIPT}", {"command": "false", "control": {"slots": "pg-restart/1"}})
    path = site.fleet.write("restart.yaml", manifest(failing))
    assert site.fleet.ctl("apply", path, "-t", "role=db,node=db1", "--yes").code == 2
    locked = ("web2", "--resource", "service#nginx", "--for", "8h", "--why", SCRIPT, "--yes")
    done = site.fleet.ctl("lock", *locked)
    assert done.code == 0, done.err
    return site


def test_slots_and_locks_are_shown(page: Page, held: Site) -> None:
    page.goto(f"{held.address}/slots")

    slot = page.get_by_role("region", name="Slots").last.locator("tbody tr")
    expect(slot).to_have_count(1)
    expect(slot).to_contain_text("pg-restart/1")
    expect(slot).to_contain_text("db1")
    expect(slot).to_contain_text("kept after a failure")
    expect(slot).to_contain_text(f"exec#restart {SCRIPT}")
    locks = page.get_by_role("region", name="Locks").last.locator("tbody tr")
    expect(locks).to_have_count(1)
    expect(locks).to_contain_text("service#nginx")
    expect(locks).to_contain_text(SCRIPT)
    assert page.locator("main script, main img").count() == 0


def test_a_table_is_saved_for_programs(page: Page, held: Site) -> None:
    page.goto(f"{held.address}/slots")
    section = page.get_by_role("region", name="Slots").first
    with page.expect_download() as saved:
        section.get_by_role("button", name="JSON").press("Enter")

    [row] = json.loads(saved.value.path().read_text())
    assert (row["Node"], row["State"], row["For"]) == ("db1", "failed", f"exec#restart {SCRIPT}")


def test_changes_begin_with_what_changed_or_failed(page: Page, held: Site) -> None:
    page.goto(f"{held.address}/changes")
    rows = page.locator("table.events tbody tr")

    expect(rows.filter(has_text="migrate <script>").first).to_contain_text("problem")
    expect(page.get_by_role("columnheader", name="Outcome")).to_be_visible()
    expect(rows.filter(has_text="agent startup")).to_have_count(0)
    words = set(rows.locator(".sign").all_text_contents())
    assert words <= {"change", "problem"}

    page.get_by_role("button", name="All events").click()
    expect(rows.filter(has_text="agent startup").first).to_be_visible()


def test_a_plan_would_change_nodes_and_its_tally_leads_to_them(page: Page, held: Site) -> None:
    path = held.fleet.write("planned.yaml", manifest(a_file("planned")))
    planned = held.fleet.ctl("plan", path, "-t", "role=web,node=web1", "--json")
    assert planned.code == 0, planned.err
    page.goto(f"{held.address}/runs")
    row = page.locator("tbody tr").filter(has_text="plan planned").first
    expect(row).to_contain_text("would change 1")

    row.get_by_role("link", name="would change 1").click()

    expect(page).to_have_url(re.compile(r"state=changed"))
    nodes = page.get_by_role("region", name="Nodes of the run").locator("tbody tr")
    expect(nodes).to_have_count(1)
    expect(nodes).to_contain_text("would change")


def test_events_of_any_time_are_found_by_an_expression(page: Page, held: Site) -> None:
    page.goto(f"{held.address}/changes")
    page.get_by_label("Where").fill('failed && name startsWith "migrate"')
    page.get_by_label("Period").select_option("all")
    page.get_by_label("Where").press("Enter")

    expect(page.locator("tbody tr").first).to_contain_text("migrate <script>")
    expect(page.locator("tbody tr").filter(has_text="restart")).to_have_count(0)
    expect(page.get_by_text("The whole period was searched.")).to_be_visible()
    assert "where=" in page.url
    assert page.locator("main script, main img").count() == 0


def test_an_expression_that_does_not_parse_is_explained(page: Page, held: Site) -> None:
    page.goto(f"{held.address}/changes?where=faild")

    expect(page.get_by_role("alert")).to_contain_text("faild")


def test_axe_finds_nothing_serious(page: Page, held: Site) -> None:
    for path in ("/slots", "/changes?period=all&where=failed"):
        page.goto(held.address + path)
        page.locator("tbody tr").first.wait_for()

        looks_well_everywhere(page)
