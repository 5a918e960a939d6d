"""Each line about a resource leads back to its run, operator, signature, manifest, data and diff."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.dashboard.conftest import SCRIPT, WAYS, Site, Way, context_of, looks_well
from tests.dashboard.keyboard import Hands
from tests.support.fleet import manifest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]


@pytest.fixture(params=WAYS, ids=str)
def hands(request: pytest.FixtureRequest, browser: Browser, site: Site) -> Iterator[Hands]:
    """A user who may only look."""
    way: Way = request.param
    with context_of(browser, storage_state=site.signed_in(browser), **way.settings) as context:
        yield Hands(context.new_page(), is_keyboard=way.is_keyboard)


@pytest.fixture(scope="module")
def changed(site: Site) -> Iterator[tuple[str, str]]:
    """A run that changed a file with a script in it on web1, with a diff; its id, and the file."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        own = {"owner": str(os.getuid()), "group": str(os.getgid()), "mode": "0644"}
        path = f"{name}/explained"
        resource = ("file", path, {"ensure": "present", "content": f"{SCRIPT}\n", **own})
        data = site.fleet.write("explained-data.yaml", "data: {port: 80}\n")
        assert site.fleet.ctl("data", "put", "explained", data).code == 0
        written = site.fleet.write("explained.yaml", manifest(resource))
        more = ("-t", "node=web1", "--data", "kv://CCM_DATA/explained", "--diff", "--yes", "--json")
        done = site.fleet.ctl("apply", written, *more)
        assert done.code == 0, done.out + done.err
        yield done.run, path


@pytest.mark.parametrize("place", ["/runs/{run}", "/nodes/web1", "/changes?text=explained&kind=resource"])
def test_a_line_is_explained(hands: Hands, site: Site, changed: tuple[str, str], place: str) -> None:
    page, (run, path) = hands.page, changed
    page.goto(site.address + place.format(run=run))
    if "run" in place:
        hands.press(page.get_by_role("button", name="1 change", exact=True))

    # the page of the node also lists the event
    part = page.get_by_role("region", name="Resources") if "nodes" in place else page
    button = part.get_by_role("button", name=f"Explain file#{path} on web1")
    hands.press(button)

    panel = page.get_by_role("group", name=f"Origin of file#{path} on web1")
    expect(panel).to_contain_text(f"{run[:8]} apply explained")
    for text in ("Started bytester", "Requestnot signed", "sha256:", "explained revision "):
        expect(panel).to_contain_text(text)
    if "run" not in place:
        expect(panel.locator(".diff .add")).to_have_text(f"+{SCRIPT}")
    expect(panel.get_by_role("link", name="Undo")).to_have_count(0)
    assert page.locator("main script, main img").count() == 0
    hands.assert_not_lost()
    looks_well(page)

    page.keyboard.press("Enter")  # the button has kept the focus
    expect(panel).to_have_count(0)
