"""Each action on the page of a run: with the mouse on a wide screen, and with the keyboard alone on a dark phone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.dashboard.conftest import WAYS, Site, Way, context_of, looks_well
from tests.dashboard.keyboard import Hands
from tests.support.fleet import a_file, a_gate, manifest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]


@pytest.fixture(params=WAYS, ids=str)
def hands(request: pytest.FixtureRequest, browser: Browser, acting: Site) -> Iterator[Hands]:
    """A user who may act."""
    way: Way = request.param
    with context_of(browser, storage_state=acting.signed_in(browser), **way.settings) as context:
        yield Hands(context.new_page(), is_keyboard=way.is_keyboard)


def act(hands: Hands, action: str, why: str = "") -> None:
    """Press the button of an action, look at what is asked, and confirm it."""
    page = hands.page
    hands.press(page.get_by_role("button", name=f"{action} …"))
    if why:
        hands.write(page.get_by_label("Why"), why)
    looks_well(page)
    hands.press(page.get_by_role("button", name=f"{action} the rollout"))


def phase_becomes(page: Page, phase: str) -> None:
    expect(page.locator(".tag.phase")).to_have_text(phase)


def test_a_rollout_is_paused_resumed_and_promoted(hands: Hands, acting: Site) -> None:
    page, fleet = hands.page, acting.fleet
    name = "held-keyboard" if hands.is_keyboard else "held-mouse"
    path = fleet.write(f"{name}/manifest.yaml", manifest(a_file(f"begun-{name}"), a_gate(name)))
    driver = fleet.begin(
        "apply", path, "-t", "role=web,node=web*", "--canary", "1", "--bake", "1h", "--yes", "--json"
    )
    fleet.wait_for((fleet.agents["web1"].files / f"at-{name}").exists, "the first node to begin")
    page.goto(f"{acting.address}/runs/{driver.so_far.run}")

    act(hands, "Pause", why="lunch")
    phase_becomes(page, "paused")
    hands.assert_not_lost()
    expect(page.locator(".card .problem")).to_contain_text("tester (dashboard): lunch")
    looks_well(page)

    act(hands, "Resume")
    phase_becomes(page, "running")
    hands.assert_not_lost()
    fleet.open_gates("web1", "web2", gate=name)
    phase_becomes(page, "baking")

    act(hands, "Promote")
    phase_becomes(page, "done")
    hands.assert_not_lost()
    done = driver.end()
    assert (done.code, done.states) == (0, {"web1": "changed", "web2": "changed"})


def failing_rollout(site: Site, name: str) -> str:
    """A rollout that paused because its first node failed; its id."""
    site.fleet.write(f"{name}/manifest.yaml", manifest(("exec", "deploy", {"command": "false"})))
    path = str(site.fleet.directory / name)
    return site.fleet.ctl("apply", path, "-t", "role=web,node=web*", "--batch", "1", "--yes", "--json").run


def test_a_paused_rollout_is_aborted(hands: Hands, acting: Site) -> None:
    page = hands.page
    page.goto(f"{acting.address}/runs/{failing_rollout(acting, 'rollout')}")

    act(hands, "Abort", why="wrong version")

    phase_becomes(page, "aborted")
    hands.assert_not_lost()
    expect(page.locator(".card .problem")).to_contain_text("tester (dashboard): wrong version")
    expect(page.get_by_role("button", name="Abort …")).to_have_count(0)
    looks_well(page)


def test_an_action_that_is_refused_is_explained_and_can_be_tried_again(hands: Hands, acting: Site) -> None:
    page, run = hands.page, failing_rollout(acting, "refused")
    page.goto(f"{acting.address}/runs/{run}")
    page.route("**/resume", lambda route: route.fulfill(status=503, json={"error": "the broker is away"}))

    act(hands, "Resume")

    expect(page.get_by_role("alert").filter(has_text="the broker is away")).to_be_visible()
    # nothing drives it, so the page offers the command
    expect(page.get_by_text(f"ccmctl run resume {run[:8]}")).to_be_visible()
    hands.assert_not_lost()
    looks_well(page)
    expect(page.get_by_role("button", name="Resume the rollout")).to_be_enabled()
    phase_becomes(page, "paused")
    assert acting.fleet.ctl("run", "abort", run).code == 0


def test_a_run_is_retried_on_the_chosen_nodes(hands: Hands, acting: Site) -> None:
    page, fleet = hands.page, acting.fleet
    name = "again-keyboard" if hands.is_keyboard else "again-mouse"
    ready = fleet.directory / f"{name}.ready"
    fleet.write(f"{name}/manifest.yaml", manifest(("exec", "deploy", {"command": f"test -e {ready}"})))
    first = fleet.ctl("apply", str(fleet.directory / name), "-t", "role=web,node=web*", "--yes", "--json").run
    ready.touch()
    page.goto(f"{acting.address}/runs/{first}")

    hands.press(page.get_by_role("button", name="Retry …"))
    hands.write(page.get_by_label("Message"), "the database is back")
    looks_well(page)
    hands.press(page.get_by_role("button", name="Retry on 2 nodes"))

    expect(page.get_by_text("Sends run")).to_be_visible()
    expect(page.locator(".lead")).to_have_text("the database is back")
    hands.assert_not_lost()
    expect(page.get_by_role("group", name="Nodes by state")).to_contain_text("2 changed")
    expect(page.get_by_role("button", name="Retry …")).to_have_count(0)
    looks_well(page)
    again = page.url.rpartition("/")[2]
    assert again != first

    def closed() -> bool:
        runs = fleet.ctl("run", "list", "--json").named("run")
        return any(one["run"] == again and one.get("state") == "done" for one in runs)

    fleet.wait_for(closed, "the record of the retry to be closed")


def test_without_the_right_no_action_is_offered(page: Page, site: Site) -> None:
    page.goto(f"{site.address}/runs")
    page.get_by_role("row").filter(has_text="apply").first.get_by_role("link").first.click()

    expect(page.get_by_role("heading", name="Run")).to_be_visible()
    expect(page.get_by_role("group", name="Actions")).to_have_count(0)
