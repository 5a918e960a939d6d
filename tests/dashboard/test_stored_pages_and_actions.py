"""The tables of what is stored, and actions on a rollout, in a real browser."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.dashboard.conftest import Site, context_of, serious
from tests.support.fleet import a_file, a_gate, manifest

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


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 375])
def test_axe_finds_nothing_serious(page: Page, stored: Site, scheme: str, width: int) -> None:
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    page.set_viewport_size({"width": width, "height": 800})
    for path in PAGES:
        page.goto(stored.address + path)
        page.locator("tbody tr, .empty").first.wait_for()

        assert (path, serious(page)) == (path, [])
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_paused_rollout_is_aborted_on_its_page(browser: Browser, site: Site) -> None:
    acting = Site(site.fleet)
    printed = acting.serve("--allow-actions")
    site.fleet.write("rollout/manifest.yaml", manifest(("exec", "deploy", {"command": "false"})))
    path = str(site.fleet.directory / "rollout")
    done = site.fleet.ctl("apply", path, "-t", "role=web,node=web*", "--batch", "1", "--yes", "--json")
    with context_of(browser) as context:
        page = context.new_page()
        page.goto(printed)
        page.wait_for_selector("header")
        page.goto(f"{acting.address}/runs/{done.run}")
        page.get_by_role("button", name="Abort …").press("Enter")
        page.get_by_label("Why").fill("wrong version")
        assert serious(page) == []
        page.get_by_role("button", name="Abort the rollout").press("Enter")

        expect(page.locator(".tag.phase")).to_have_text("aborted")
        expect(page.locator(".card .problem")).to_contain_text("tester (dashboard): wrong version")
        expect(page.get_by_role("button", name="Abort …")).to_have_count(0)
    acting.stop()


def test_a_rollout_is_paused_resumed_and_promoted_on_its_page(browser: Browser, site: Site) -> None:
    acting = Site(site.fleet)
    printed = acting.serve("--allow-actions")
    path = site.fleet.write("held/manifest.yaml", manifest(a_file("begun"), a_gate("held")))
    driver = site.fleet.begin(
        "apply", path, "-t", "role=web,node=web*", "--canary", "1", "--bake", "1h", "--yes", "--json"
    )
    begun = site.fleet.agents["web1"].files / "at-held"
    site.fleet.wait_for(begun.exists, "the first node to begin")
    with context_of(browser) as context:
        page = context.new_page()
        page.goto(printed)
        page.wait_for_selector("header")
        page.goto(f"{acting.address}/runs/{driver.so_far.run}")
        phase = page.locator(".tag.phase")

        act(page, "Pause", why="lunch")
        expect(phase).to_have_text("paused")
        expect(page.locator(".card .problem")).to_contain_text("tester (dashboard): lunch")

        act(page, "Resume")
        expect(phase).to_have_text("running")
        site.fleet.open_gates("web1", "web2", gate="held")
        expect(phase).to_have_text("baking")

        act(page, "Promote")
        expect(phase).to_have_text("done")
    done = driver.end()
    acting.stop()
    assert (done.code, done.states) == (0, {"web1": "changed", "web2": "changed"})


def act(page: Page, action: str, why: str = "") -> None:
    """Press the button of an action, and confirm it."""
    page.get_by_role("button", name=f"{action} …").press("Enter")
    if why:
        page.get_by_label("Why").fill(why)
    page.get_by_role("button", name=f"{action} the rollout").press("Enter")


def test_without_the_right_no_action_is_offered(page: Page, site: Site) -> None:
    page.goto(f"{site.address}/runs")
    page.get_by_role("row").filter(has_text="apply").first.get_by_role("link").first.click()

    expect(page.get_by_role("heading", name="Run")).to_be_visible()
    expect(page.get_by_role("group", name="Actions")).to_have_count(0)
