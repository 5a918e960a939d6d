"""A page is right again by itself when the broker is back."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.dashboard.conftest import Site, context_of
from tests.support.fleet import a_file, fleet, manifest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def fragile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One node, and a broker that a test may stop."""
    with fleet(tmp_path_factory.mktemp("fragile")) as built:
        built.add("web1")
        site = Site(built)
        site.serve()
        yield site


def test_a_broker_that_was_gone_is_noticed_and_its_events_come_afterwards(
    browser: Browser, fragile: Site
) -> None:
    with context_of(browser) as context:
        page = context.new_page()
        page.goto(fragile.printed)
        expect(page.locator(".heat-map .body [role=row]")).to_have_count(1)

        fragile.fleet.broker.stop()
        expect(page.locator(".connection")).to_contain_text("broker unavailable")
        expect(page.locator(".heat-map .body [role=row]")).to_have_count(1)
        fragile.fleet.broker.start()
        fragile.fleet.wait_present(["web1"])
        path = fragile.fleet.write("site.yaml", manifest(a_file("afterwards")))
        assert fragile.fleet.ctl("apply", path, "--all", "--yes").code == 0

        expect(page.locator(".connection")).to_contain_text("live")
        expect(page.locator(".events .text").filter(has_text="afterwards").first).to_be_visible()


def test_a_broker_that_is_frozen_is_noticed_within_three_seconds(browser: Browser, fragile: Site) -> None:
    with context_of(browser) as context:
        page = context.new_page()
        page.goto(fragile.printed)
        expect(page.locator(".connection")).to_contain_text("live")

        os.kill(fragile.fleet.broker.pid, signal.SIGSTOP)
        try:
            expect(page.locator(".connection")).to_contain_text("broker unavailable", timeout=3000)
        finally:
            os.kill(fragile.fleet.broker.pid, signal.SIGCONT)

        expect(page.locator(".connection")).to_contain_text("live")


def test_a_killed_agent_is_marked_before_it_counts_as_offline(browser: Browser, fragile: Site) -> None:
    agent = fragile.fleet.agents["web1"]
    with context_of(browser) as context:
        page = context.new_page()
        page.goto(fragile.printed)
        row = page.locator(".heat-map .body [role=row]")
        expect(row).to_contain_text("unassigned")
        expect(page.locator(".sub time").first).to_contain_text("ago")

        agent.kill()
        expect(row).to_contain_text("silent")
        [listed] = fragile.fleet.ctl("node", "list", "--json").named("node")
        expect(
            page.get_by_role("region", name="Needs attention").get_by_role("link", name="web1")
        ).to_be_visible()

        agent.start()
        fragile.fleet.wait_present(["web1"])
        expect(row).to_contain_text("unassigned")

    assert (listed["state"], listed["condition"], listed["late"]) == ("present", "silent", True)


def test_a_page_that_was_asleep_shows_what_happened_meanwhile(browser: Browser, fragile: Site) -> None:
    with context_of(browser) as context:
        page = context.new_page()
        page.goto(fragile.printed)
        expect(page.locator(".connection")).to_contain_text("live")
        system = context.new_cdp_session(page)

        system.send("Page.setWebLifecycleState", {"state": "frozen"})
        path = fragile.fleet.write("site.yaml", manifest(a_file("meanwhile")))
        assert fragile.fleet.ctl("apply", path, "--all", "--yes").code == 0
        system.send("Page.setWebLifecycleState", {"state": "active"})

        expect(page.locator(".events .text").filter(has_text="meanwhile").first).to_be_visible()
        expect(page.locator(".heat-map .body [role=row]").first).to_contain_text("changed")


def test_a_page_whose_connection_was_silent_for_an_hour_connects_again(
    browser: Browser, fragile: Site
) -> None:
    with context_of(browser) as context:
        page = context.new_page()
        page.clock.install()
        page.goto(fragile.printed)
        expect(page.locator(".connection")).to_contain_text("live")

        context.set_offline(True)
        path = fragile.fleet.write("site.yaml", manifest(a_file("overnight")))
        assert fragile.fleet.ctl("apply", path, "--all", "--yes").code == 0
        page.clock.fast_forward("01:00:00")
        context.set_offline(False)
        page.clock.fast_forward("00:05")

        expect(page.locator(".connection")).to_contain_text("live")
        expect(page.locator(".events .text").filter(has_text="overnight").first).to_be_visible()


def test_a_dashboard_that_was_restarted_is_used_again_without_signing_in(
    browser: Browser, fragile: Site
) -> None:
    with context_of(browser) as context:
        page = context.new_page()
        page.goto(fragile.printed)
        expect(page.locator(".connection")).to_contain_text("live")
        port = int(fragile.address.rpartition(":")[2])

        fragile.stop()
        expect(page.locator(".connection")).to_contain_text("reconnecting")
        path = fragile.fleet.write("site.yaml", manifest(a_file("between")))
        assert fragile.fleet.ctl("apply", path, "--all", "--yes").code == 0
        fragile.serve(port=port)

        expect(page.locator(".connection")).to_contain_text("live")
        expect(page.locator(".events .text").filter(has_text="between").first).to_be_visible()
        expect(page.locator(".heat-map .body [role=row]").first).to_contain_text("changed")
