"""The past of a node, its data with origin, and the history of its facts, in a real browser."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import Page, expect

from tests.dashboard.conftest import SCRIPT, Site, looks_well_everywhere
from tests.support.fleet import manifest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

DATA = """\
hierarchy: {order: ["role:{{ lookup('facts.role') }}"], merge: deep, secret: ["tls.key"]}
data: {port: 80, password: hunter2, motto: "<script>alert(3)</script>", tls: {key: verysecret}}
overrides: {"role:web": {port: 8080}}
"""


@pytest.fixture(scope="module")
def lived(site: Site) -> Site:
    """web1 was without a file, then had it; its facts changed twice; there is data with secrets."""
    data = site.fleet.write("origin.yaml", DATA)
    assert site.fleet.ctl("data", "put", "common", data).code == 0
    assert site.fleet.ctl("facts", "set", "web1", "rack=7").code == 0
    assert site.fleet.ctl("facts", "set", "web1", "rack=8").code == 0
    path = site.fleet.write("lived.yaml", manifest(("exec", f"seen {SCRIPT}", {"command": "true"})))
    assert site.fleet.ctl("apply", path, "-t", "role=web,node=web1", "--yes").code == 0
    return site


def test_the_state_before_and_after_a_change_is_shown(page: Page, lived: Site) -> None:
    page.goto(f"{lived.address}/nodes/web1")
    past = page.get_by_role("region", name="Past")
    sessions = past.get_by_role("region", name="Sessions").locator("tbody tr")
    expect(sessions.filter(has_text="lived")).to_contain_text(f"exec#seen {SCRIPT}")

    past.get_by_role("button", name="Earlier change").press("Enter")
    expect(past.locator(".lead")).to_contain_text("At 20")
    expect(past.get_by_role("region", name="Resources of lived at that time")).to_contain_text(
        "seen <script>"
    )
    assert "at=" in page.url

    page.goto(f"{lived.address}/nodes/web1?at=1000000000")
    expect(past.get_by_text("No state is known for this time.")).to_be_visible()
    slider = past.get_by_role("slider")
    slider.focus()
    slider.press("End")
    expect(past.locator(".lead")).to_be_visible()
    assert page.locator("main script, main img").count() == 0


def test_data_is_explained_without_its_secrets(page: Page, lived: Site) -> None:
    answers: list[str] = []
    page.on("response", lambda one: answers.append(one.text()) if "/data?" in one.url else None)
    page.goto(f"{lived.address}/nodes/web1")
    data = page.get_by_role("region", name="Data", exact=True)
    data.get_by_role("button", name="port", exact=True).press("Enter")

    expect(data.locator(".lead")).to_contain_text("port is 8080")
    layers = data.get_by_role("region", name="Layers").locator("tbody tr")
    expect(layers.first).to_contain_text("role:web")
    expect(layers.first).to_contain_text("wins")
    expect(layers.filter(has_text="overridden")).to_contain_text("80")
    with page.expect_download() as saved:
        data.get_by_role("button", name="JSON").click()
    assert [row["Value"] for row in json.loads(saved.value.path().read_text())] == [8080, 80]
    for key, shown in (("password", "***"), ("tls", '{"key":"***"}'), ("motto", "<script>alert(3)</script>")):
        page.goto(f"{lived.address}/nodes/web1?key={key}")
        expect(data.locator(".lead")).to_contain_text(shown)
    assert page.locator("main script, main img").count() == 0
    assert answers
    assert not any("hunter2" in one or "verysecret" in one for one in answers)


def test_assigned_facts_have_a_history(page: Page, lived: Site) -> None:
    page.goto(f"{lived.address}/nodes/web1")

    rows = page.get_by_role("region", name="History of assigned facts").locator("tbody tr")
    expect(rows).to_have_count(3)
    expect(rows.nth(0)).to_contain_text("rack: 7 → 8")
    expect(rows.nth(0)).to_contain_text("tester")
    expect(rows.nth(2)).to_contain_text(f"motto={SCRIPT}")


def test_axe_finds_nothing_serious(page: Page, lived: Site) -> None:
    page.goto(f"{lived.address}/nodes/web1?key=port")
    page.get_by_role("region", name="Layers").wait_for()
    page.get_by_role("button", name="Earlier change").click()
    page.get_by_text("At 20").wait_for()

    looks_well_everywhere(page)
