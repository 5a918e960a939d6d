"""The tables of what is stored, in a real browser."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.dashboard.conftest import Site, looks_well_everywhere
from tests.support.fleet import manifest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

PAGES = (
    "/changes",
    "/assignments",
    "/assignments/web",
    "/data",
    "/data/common",
    "/schedules",
    "/registrations",
)


@pytest.fixture(scope="module")
def stored(site: Site) -> Site:
    """Data with a secret, and a schedule."""
    data = site.fleet.write("common.yaml", "data: {port: 80, password: hunter2}\n")
    site.fleet.write("nightly/manifest.yaml", manifest(("exec", "nightly", {"command": "true"})))
    assert site.fleet.ctl("data", "put", "common", data, "--message", "<b>first</b>").code == 0
    path = str(site.fleet.directory / "nightly")
    done = site.fleet.ctl(
        "schedule", "add", "nightly", path, "-t", "role=web", "--cron", "0 2 * * *", "--yes"
    )
    assert done.code == 0, done.err
    return site


def test_each_table_shows_what_is_stored(page: Page, stored: Site) -> None:
    shown = {
        "/changes": "migrate <script>",
        "/assignments": "2 converged",
        "/assignments/web": "role=web",
        "/data": "<b>first</b>",
        "/data/common": "show changes of revision",
        "/schedules": "apply nightly",
    }
    for path, text in shown.items():
        page.goto(stored.address + path)

        expect(page.locator("tbody").get_by_text(text).first).to_be_visible()


def test_no_page_has_the_text_of_data(page: Page, stored: Site) -> None:
    answers: list[str] = []
    page.on("response", lambda one: answers.append(one.text()) if "/api/data" in one.url else None)
    for path in ("/data", "/data/common"):
        page.goto(stored.address + path)
        expect(page.locator("tbody tr").first).to_be_visible()

    assert answers
    assert not any("hunter2" in one for one in answers)


def test_events_are_searched(page: Page, stored: Site) -> None:
    page.goto(f"{stored.address}/changes")
    page.get_by_label("Node", exact=True).fill("db*")
    page.get_by_label("Outcome").select_option("bad")
    page.get_by_role("button", name="Search").click()

    expect(page.locator("tbody tr").filter(has_text="migrate").first).to_be_visible()
    expect(page.locator("tbody tr").filter(has_text="web1")).to_have_count(0)
    assert "meaning=bad" in page.url


def test_axe_finds_nothing_serious(page: Page, stored: Site) -> None:
    for path in PAGES:
        page.goto(stored.address + path)
        page.locator("tbody tr, .empty").first.wait_for()

        looks_well_everywhere(page)
