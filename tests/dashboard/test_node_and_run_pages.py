"""The pages of a node and of runs in a real browser, on real agents."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.dashboard.conftest import Site, looks_well_everywhere
from tests.support.fleet import manifest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def rollout(site: Site) -> str:
    """A rollout that its first wave paused; its id."""
    failing = ("exec", "deploy", {"command": "sh -c 'echo \"<b>deploying</b>\"; exit 4'"})
    site.fleet.write("deploy/manifest.yaml", manifest(failing))
    path = str(site.fleet.directory / "deploy")
    done = site.fleet.ctl(
        "apply", path, "-t", "role=web,node=web*", "--canary", "1", "--batch", "1", "--yes", "--json"
    )
    assert done.code == 2, done.err
    return done.run


def test_page_of_a_node_explains_its_state(page: Page, site: Site) -> None:
    page.goto(f"{site.address}/nodes/db1")

    expect(page.locator(".lead")).to_contain_text("db1 has failed")
    expect(page.locator(".card .output")).to_contain_text("<script>alert(2)</script>")
    expect(page.get_by_role("region", name="Assignments")).to_contain_text("database")
    expect(page.get_by_role("region", name="Resources")).to_contain_text("exec#migrate <script>")
    expect(page.locator("dl.facts")).to_contain_text("host.info.os")
    assert page.locator("main script, main img").count() == 0


def test_facts_are_searched(page: Page, site: Site) -> None:
    page.goto(f"{site.address}/nodes/web1")

    page.get_by_label("Search facts").fill("role=web")

    expect(page.locator("dl.facts dt")).to_have_count(1)
    expect(page.locator("dl.facts")).to_contain_text("assigned")


def test_a_node_that_does_not_exist_is_named_with_the_nearest(page: Page, site: Site) -> None:
    page.goto(f"{site.address}/nodes/web9")

    expect(page.get_by_role("alert")).to_contain_text("did you mean")


def test_runs_are_listed_and_filtered(page: Page, site: Site, rollout: str) -> None:
    page.goto(f"{site.address}/runs")
    expect(page.get_by_role("row").filter(has_text="apply deploy")).to_have_count(1)
    expect(page.get_by_role("row").filter(has_text="assignment database")).to_have_count(1)

    page.get_by_label("Started by").select_option("request")
    page.get_by_role("button", name="Show").click()

    expect(page.get_by_role("row").filter(has_text="assignment database")).to_have_count(0)
    assert "cause=request" in page.url


def test_a_rollout_shows_its_waves_and_what_failed(page: Page, site: Site, rollout: str) -> None:
    page.goto(f"{site.address}/runs/{rollout}")

    expect(page.locator(".tag.phase")).to_have_text("paused")
    expect(page.locator(".wave").first).to_contain_text("canary")
    expect(page.locator(".wave").first).to_contain_text("1 of 1 node")
    failed = page.get_by_role("row").filter(has_text="exec#deploy")
    expect(failed).to_contain_text("exit code 4")
    expect(failed.locator(".output")).to_contain_text("<b>deploying</b>")
    failed.get_by_role("button", name="exec#deploy").click()
    expect(failed.locator(".failure .output")).to_contain_text("<b>deploying</b>")


def test_axe_finds_nothing_serious(page: Page, site: Site, rollout: str) -> None:
    for path, shown in (("/nodes/db1", ".lead"), ("/runs", "tbody tr"), (f"/runs/{rollout}", ".wave")):
        page.goto(site.address + path)
        page.locator(shown).first.wait_for()

        looks_well_everywhere(page)
