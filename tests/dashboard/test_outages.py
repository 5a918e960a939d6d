"""A page is right again by itself when the broker is back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.dashboard.conftest import Site, context_of
from tests.support.fleet import a_file, fleet, manifest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]


@pytest.fixture
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
