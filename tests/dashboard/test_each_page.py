"""What holds on each page: widths, colors, the keyboard alone, tables for programs, links that can be shared, and print."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.dashboard.conftest import Site, context_of, serious
from tests.dashboard.keyboard import FOCUSABLE, TABS, walk
from tests.support.fleet import FILES, manifest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

WIDTHS = (1440, 800, 375)
PAGES = {
    "fleet": "/?facts=role,host.info.os&sort=problems",
    "node": "/nodes/web1?at=4000000000&key=port",
    "runs": "/runs",
    "run": "/runs/{run}",
    "changes": "/changes?period=1d",
    "assignments": "/assignments",
    "assignment": "/assignments/web",
    "data": "/data",
    "document": "/data/common?changes={revision}",
    "schedules": "/schedules",
    "registrations": "/registrations",
    "slots": "/slots",
    "studio": "/studio",
}
FIRST = 'data: {port: 80, password: planted-old, motto: "<img src=x onerror=alert(4)>"}\n'
SECOND = "data: {port: 8080, password: planted-new, banner: planted-old here}\n"

PRINTED = """() => {
    const isCut = (one) => one.scrollHeight > one.clientHeight + 1 || one.scrollWidth > one.clientWidth + 1;
    const shown = (pattern) => [...document.querySelectorAll(pattern)].filter((one) => one.checkVisibility());
    const style = getComputedStyle(document.documentElement);
    return {
        cut: shown('main .scroll, main .heat-map, main .output, main .diff').filter(isCut)
            .map((one) => `${one.className} ${one.ariaLabel}: ${one.scrollWidth} of ${one.clientWidth}`),
        ground: style.backgroundColor,
        text: style.color,
        buttons: shown('nav, .export, .filters').length,
    };
}"""
"""What is cut off on paper, and its colors."""


@pytest.fixture(scope="module")
def full(site: Site) -> Iterator[dict[str, Any]]:
    """Something on every page: two revisions of data, a schedule, a lock, a service, and a run that failed."""
    run = site.fleet.ctl
    failing = ("exec", "deploy", {"command": "sh -c 'echo port 80 is taken; exit 4'"})
    site.fleet.write("pages/manifest.yaml", manifest(failing))
    directory = str(site.fleet.directory / "pages")
    service = {
        "cluster": "prod",
        "service": "shop",
        "protocol": "http",
        "address": "192.0.2.2",
        "port": 80,
        "priority": 9,
    }
    served = (
        "file",
        f"{FILES}/served",
        {"ensure": "present", "content": "x", "register_when_stable": [service]},
    )
    served[2].update(owner="*", group="*", mode="0644")
    for number, text in enumerate((FIRST, SECOND)):
        data = site.fleet.write("pages-data.yaml", text)
        assert run("data", "put", "common", data, "--message", f"change {number}").code == 0
    revision = run("data", "history", "common", "--json").records[0]["revision"]
    assert (
        run("schedule", "add", "pages", directory, "-t", "role=web", "--cron", "0 3 * * *", "--yes").code == 0
    )
    assert run("lock", "web2", "--for", "1h", "--why", "pages", "--resource", "file#/x", "--yes").code == 0
    for more in (
        (),
        (("exec", "again", {"command": "true"}),),
    ):  # what has just changed is not stable, so not registered
        path = site.fleet.write("pages-served.yaml", manifest(served, *more))
        assert run("assign", "pages", path, "-t", "node=web1", "--yes").code == 0
        assert run("assignment", "status", "pages", "--wait", "60s").code == 0
    failed = run("apply", directory, "-t", "role=web,node=web*", "--canary", "1", "--yes", "--json")
    yield {"run": failed.run, "revision": revision}
    assert run("schedule", "rm", "pages", "--yes").code == 0
    assert run("unassign", "pages", "--yes").code == 0
    assert run("unlock", "web2", "--resource", "file#/x", "--yes").code == 0


def opened(page: Page, site: Site, path: str, full: dict[str, Any]) -> None:
    """Go to a page, and wait until it shows what it has."""
    page.goto(site.address + path.format(**full))
    expect(page.locator("main h1, main form.filters").first).to_be_visible()
    expect(page.locator("[aria-busy=true]")).to_have_count(0)
    expect(page.locator(".connection.good")).to_be_visible()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_each_width_and_is_used_with_the_keyboard_alone(
    browser: Browser, site: Site, full: dict[str, Any], name: str
) -> None:
    with context_of(browser, color_scheme="dark", storage_state=site.signed_in(browser)) as context:
        page = context.new_page()
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 800})
            if width == WIDTHS[0]:
                opened(page, site, PAGES[name], full)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert serious(page) == []

        seen, problems = walk(page)

        assert problems == []
        missing = [
            place
            for place in range(min(page.evaluate(f"({FOCUSABLE})().length"), TABS // 2))
            if place not in seen
        ]
        assert missing == []


@pytest.mark.parametrize("name", [one for one in PAGES if one != "studio"])
def test_each_table_is_saved_for_programs_with_the_keyboard(
    browser: Browser, site: Site, full: dict[str, Any], name: str
) -> None:
    settings = {"viewport": {"width": 375, "height": 800}, "storage_state": site.signed_in(browser)}
    with context_of(browser, **settings) as context:
        page = context.new_page()
        opened(page, site, PAGES[name], full)

        without = page.evaluate(
            "() => [...document.querySelectorAll('main table')]"
            ".filter((one) => !one.closest('section, main').querySelector('.export button'))"
            ".map((one) => one.parentElement.ariaLabel)"
        )
        assert without == []
        tables = page.locator(".export").filter(has=page.get_by_role("button", name="CSV"))
        for place in range(tables.count()):
            if place and place % 4 == 0:
                opened(page, site, PAGES[name], full)  # Chromium lets a page start ten downloads
            saved = {}
            # this one, also when another table appears before it
            one = tables.nth(place).element_handle()
            for kind in ("CSV", "JSON"):
                button = one.wait_for_selector(f"button:has-text('{kind}')")
                assert button is not None
                with page.expect_download() as download:
                    button.press("Enter")
                saved[kind] = download.value.path().read_text()
            rows = json.loads(saved["JSON"])
            header, *lines = list(csv.reader(saved["CSV"].splitlines()))
            assert header
            assert all(list(row) == header for row in rows)
            assert len(lines) >= len(rows)
        assert tables.count() > 0


def test_the_page_that_is_shown_is_shared_by_its_address(
    browser: Browser, site: Site, full: dict[str, Any]
) -> None:
    settings = {"viewport": {"width": 375, "height": 800}, "storage_state": site.signed_in(browser)}
    with context_of(browser, permissions=["clipboard-read", "clipboard-write"], **settings) as context:
        page = context.new_page()
        opened(page, site, "/", full)
        page.get_by_label("Nodes", exact=True).fill("role=web,node=web*")
        page.get_by_label("Where").fill('Facts.role == "web"')
        page.get_by_label("Where").press("Enter")
        expect(page.get_by_role("rowheader")).to_have_count(2)

        page.get_by_role("button", name="Link").press("Enter")

        expect(page.locator(".said")).to_have_text("copied")
        address = page.evaluate("navigator.clipboard.readText()")
        assert "targets=role" in address
        assert "where=Facts" in address
        other = context.new_page()
        other.goto(address)
        expect(other.get_by_role("rowheader")).to_have_count(2)
        expect(other.get_by_label("Where")).to_have_value('Facts.role == "web"')


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_printed_whole_and_in_black_on_white(
    browser: Browser, site: Site, full: dict[str, Any], name: str
) -> None:
    settings = {"color_scheme": "dark", "storage_state": site.signed_in(browser)}
    with context_of(browser, viewport={"width": 718, "height": 1000}, **settings) as context:
        page = context.new_page()
        opened(page, site, PAGES[name], full)
        page.evaluate("document.documentElement.dataset.theme = 'dark'")
        page.emulate_media(media="print")
        page.evaluate("dispatchEvent(new Event('beforeprint'))")

        shown = page.evaluate(PRINTED)

        assert shown == {"cut": [], "ground": "rgb(255, 255, 255)", "text": "rgb(0, 0, 0)", "buttons": 0}
        assert page.pdf()[:5] == b"%PDF-"


def test_changes_of_data_are_shown_without_secrets(page: Page, site: Site, full: dict[str, Any]) -> None:
    page.set_viewport_size({"width": 375, "height": 800})
    answers: list[str] = []
    page.on("response", lambda one: answers.append(one.text()) if "/api/data" in one.url else None)
    opened(page, site, "/data/common", full)

    page.get_by_role("button", name=f"show changes of revision {full['revision']}").press("Enter")

    changes = page.get_by_role("region", name=f"Changes of revision {full['revision']}").locator("tbody tr")
    expect(changes.filter(has_text="data.port")).to_have_text("data.portchanged808080")
    expect(changes.filter(has_text="data.password")).to_have_text("data.passwordchanged******")
    expect(changes.filter(has_text="data.motto")).to_contain_text("<img src=x")
    expect(changes.filter(has_text="data.banner")).to_have_text("data.banneradded*** here")
    assert f"changes={full['revision']}" in page.url
    assert "planted" not in "".join(answers) + page.content()
    assert page.locator("main img").count() == 0
