"""Who may retry a run, and the diffs of a run, in a real browser on real agents."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.dashboard.conftest import SCRIPT, Site, context_of, serious
from tests.support.fleet import manifest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

POST = """async ([path, token]) => {
  const headers = {"Content-Type": "application/json", ...(token ? {"X-CCM-Action": token} : {})};
  return (await fetch(path, {method: "POST", headers, body: "{}"})).status;
}"""


@pytest.fixture
def acting_page(browser: Browser, acting: Site) -> Iterator[Page]:
    with context_of(browser, storage_state=acting.signed_in(browser)) as context:
        page = context.new_page()
        page.goto(acting.address)
        page.wait_for_selector("header")
        yield page


def a_failed_run(site: Site, name: str) -> str:
    """A stored manifest that fails on web1 and web2 until the file `NAME.ready` exists; the id of the run."""
    ready = site.fleet.directory / f"{name}.ready"
    site.fleet.write(f"{name}/manifest.yaml", manifest(("exec", "deploy", {"command": f"test -e {ready}"})))
    path = str(site.fleet.directory / name)
    done = site.fleet.ctl("apply", path, "-t", "role=web,node=web*", "--yes", "--json")
    assert done.code == 2, done.err
    return done.run


@pytest.fixture(scope="module")
def planned(site: Site) -> Iterator[str]:
    """A plan that would create the same file on two nodes, in a folder that all can read; its id."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    shared = str(folder / "shared.conf")
    content = {"ensure": "present", "content": f"{SCRIPT}\nport 80\n", "owner": "root", "group": "root"}
    path = site.fleet.write("shared.yaml", manifest(("file", shared, {**content, "mode": "0644"})))
    done = site.fleet.ctl("plan", path, "-t", "role=web,node=web*", "--json")
    assert done.run, done.err
    yield done.run
    folder.rmdir()


def test_only_the_chosen_ends_are_retried(acting_page: Page, acting: Site) -> None:
    first = a_failed_run(acting, "chosen")
    acting_page.goto(f"{acting.address}/runs/{first}")
    acting_page.get_by_role("button", name="Retry …").click()
    acting_page.get_by_label("2 failed").uncheck()

    expect(acting_page.get_by_role("button", name="Retry on 0 nodes")).to_be_disabled()


def test_a_retry_with_a_message_that_is_too_long_is_refused(acting_page: Page, acting: Site) -> None:
    first = a_failed_run(acting, "wordy")
    send = POST.replace('"{}"', 'JSON.stringify({message: "m".repeat(1001)})')
    token = acting_page.evaluate("async () => (await (await fetch('/api/session')).json()).action")

    assert acting_page.evaluate(send, [f"/api/runs/{first}/retry", token]) == 400
    runs = acting.fleet.ctl("run", "list", "--json").named("run")
    assert [one["run"] for one in runs if one["name"] == "wordy"] == [first]


def test_a_forged_retry_is_refused(acting_page: Page, acting: Site) -> None:
    first = a_failed_run(acting, "forged")
    path = f"/api/runs/{first}/retry"

    assert acting_page.evaluate(POST, [path, ""]) == 403
    assert acting_page.evaluate(POST, [path, "0" * 64]) == 403
    elsewhere = acting_page.request.post(
        f"{acting.address}{path}", data={}, headers={"Origin": "https://evil.example"}
    )
    assert elsewhere.status == 403
    runs = acting.fleet.ctl("run", "list", "--json").named("run")
    assert [one["run"] for one in runs if one["name"] == "forged"] == [first]


def test_who_may_only_look_cannot_retry(page: Page, site: Site) -> None:
    first = a_failed_run(site, "looked")
    page.goto(f"{site.address}/runs/{first}")
    expect(page.get_by_role("heading", name="Run")).to_be_visible()
    token = page.evaluate("async () => (await (await fetch('/api/session')).json()).action")

    assert page.evaluate(POST, [f"/api/runs/{first}/retry", token]) == 403
    expect(page.get_by_role("button", name="Retry …")).to_have_count(0)


def test_equal_diffs_are_shown_once(page: Page, site: Site, planned: str) -> None:
    page.goto(f"{site.address}/runs/{planned}")
    page.get_by_role("button", name="Show diffs").press("Enter")

    group = page.locator("details.group")
    expect(group).to_have_count(1)
    expect(group.locator("summary")).to_contain_text("would change alike on 2 nodes: web1, web2")
    expect(group.locator(".diff .add").first).to_have_text(f"+{SCRIPT}")
    expect(group.locator(".diff .add")).to_have_count(2)
    assert page.locator("main script, main img").count() == 0
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        page.set_viewport_size({"width": 375, "height": 800})
        assert serious(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= 375
