"""The studio on a real fleet, in a real browser: expressions on a node's facts, and a plan with diffs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.dashboard.conftest import SCRIPT, WAYS, Site, Way, context_of, looks_well, serious
from tests.dashboard.keyboard import Hands
from tests.support.fleet import a_file, manifest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

MANIFEST = """\
data: {greeting: "from {{ Facts.role }}"}
ccm:
  resources:
    - file:
        - "{{ Facts.files }}/studio":
            ensure: present
            content: "{{ lookup('data.greeting') }}\\n{{ Facts.motto }}\\n"
            owner: "0"
            group: "0"
            mode: "0644"
            diff: true
"""


@pytest.fixture(scope="module")
def studio(site: Site) -> Iterator[Site]:
    """A studio whose user may act, on the folder `studio`."""
    folder = Path(site.fleet.write("studio/site.yaml", MANIFEST)).parent
    served = Site(site.fleet)
    served.process = site.fleet.begin("studio", str(folder), "--port", "0", "--allow-actions")
    site.fleet.wait_for(lambda: served.printed, "the studio to print its address")
    served.address = served.printed.partition("#")[0]
    yield served
    served.stop()


@contextlib.contextmanager
def studio_page(browser: Browser, studio: Site, **settings: Any) -> Iterator[Page]:
    """The Studio page in a browser of its own."""
    with context_of(browser, storage_state=studio.signed_in(browser), **settings) as context:
        page = context.new_page()
        page.goto(studio.address)
        yield page


@pytest.fixture
def opened(browser: Browser, studio: Site) -> Iterator[Page]:
    """The same with a manifest on it."""
    with studio_page(browser, studio) as page:
        page.get_by_label("File", exact=True).select_option("site.yaml")
        expect(page.locator(".findings")).to_contain_text("lint finds nothing")
        yield page


def test_expressions_give_the_values_of_the_chosen_node(opened: Page) -> None:
    opened.get_by_label("Node", exact=True).fill("web1")
    opened.get_by_label("Expression").fill("Facts.role + '!'")

    expect(opened.locator(".fleet .result").first).to_have_text('"web!"')
    expect(opened.locator(".rendered tbody")).to_contain_text("/studio")
    expect(opened.get_by_label("Content of /")).to_contain_text(f"from web\n{SCRIPT}")
    assert opened.title() == "Studio · CCM fleet"

    opened.get_by_label("Expression").fill("readFile('/etc/passwd')")
    expect(opened.locator(".fleet .bad").first).to_contain_text("evaluated there only")
    opened.evaluate("scrollTo(0, 0)")  # the header covers a part of what is below it
    assert serious(opened) == []


SHOP = """\
data: {port: 80}
ccm:
  resources:
    - scaffold:
        - /etc/shop:
            ensure: present
            engine: jinja
            source: templates/shop
    - file:
        - /etc/shop.key: {ensure: present, content: "{{ Data.db.password }}", owner: "0", group: "0", mode: "0600"}
"""
DATA = "data: {port: 8443, db: {host: db1, password: planted-secret}}\n"
TEMPLATE = "listen {{ data.port }} on {{ facts.role }}\ndb {{ data.db.host }} {{ data.db.password }}\n"


@pytest.fixture
def shop(site: Site) -> Iterator[Site]:
    """A folder with a scaffold, and data with a secret that an assignment of web1 reads."""
    site.fleet.write("studio/shop.yaml", SHOP)
    site.fleet.write("studio/templates/shop/site.conf", TEMPLATE)
    site.fleet.write("studio/templates/shop/broken.conf", "one\n{{ data.nothing.there }}\n")
    run = site.fleet.ctl
    assert run("data", "put", "shop", site.fleet.write("shop-data.yaml", DATA)).code == 0
    path = site.fleet.write("shop-assigned.yaml", manifest(a_file("shop")))
    assert run("assign", "shop", path, "-t", "node=web1", "--data", "kv://CCM_DATA/shop", "--yes").code == 0
    yield site
    assert run("unassign", "shop", "--yes").code == 0


@pytest.mark.parametrize(("width", "scheme", "is_node_first"), [(1440, "light", False), (375, "dark", True)])
def test_templates_are_rendered_for_the_chosen_node_without_secrets(
    browser: Browser, studio: Site, shop: Site, width: int, scheme: Any, is_node_first: bool
) -> None:
    with studio_page(browser, studio, viewport={"width": width, "height": 800}, color_scheme=scheme) as page:
        answers: list[str] = []
        page.on("response", lambda one: answers.append(one.text()) if "/api/studio/" in one.url else None)
        if not is_node_first:
            page.get_by_label("File", exact=True).select_option("shop.yaml")
        page.get_by_label("Node", exact=True).fill("web1")
        page.keyboard.press("Tab")
        if is_node_first:
            expect(page.get_by_label("Data", exact=True)).to_have_value("")
            page.get_by_label("File", exact=True).select_option("shop.yaml")

        expect(page.get_by_label("Data", exact=True)).to_have_value("kv://CCM_DATA/shop")
        broken = page.locator(".preview").filter(has_text="✗ error")
        expect(broken).to_contain_text("broken.conf:2")
        shop.fleet.write("studio/templates/shop/broken.conf", "mended\n")
        page.get_by_label("Expression").press_sequentially("Data.db")
        expect(page.locator(".fleet .result").first).to_have_text('{"host":"db1","password":"***"}')
        expect(page.get_by_label("Content of /etc/shop/broken.conf")).to_have_text("mended\n")
        expect(page.get_by_label("Content of /etc/shop/site.conf")).to_have_text(
            "listen 8443 on web\ndb db1 ***\n"
        )
        expect(page.get_by_label("Content of /etc/shop.key")).to_have_text("***")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.evaluate("scrollTo(0, 0)")
        assert serious(page) == []

        summary = page.locator(".preview summary").filter(has_text="/etc/shop/site.conf")
        summary.focus()
        page.keyboard.press("Enter")
        expect(page.get_by_label("Content of /etc/shop/site.conf")).to_be_hidden()
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        expect(page.locator(".cm-activeLine")).to_contain_text("/etc/shop")

        page.get_by_label("Data", exact=True).select_option("")
        expect(page.locator(".preview").filter(has_text="site.conf")).to_contain_text("site.conf:2")
        assert "planted-secret" not in page.content() + "".join(answers)


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_manifest_is_saved_planned_and_stored_and_nodes_do_not_change(
    browser: Browser, studio: Site, way: Way
) -> None:
    name = f"planned-{'keyboard' if way.is_keyboard else 'mouse'}.yaml"
    file = Path(studio.fleet.write(f"studio/{name}", MANIFEST))
    with studio_page(browser, studio, **way.settings) as page:
        hands = Hands(page, is_keyboard=way.is_keyboard)
        hands.choose(page.get_by_label("File", exact=True), name)
        expect(page.locator(".title .sub").first).to_have_text(name)
        looks_well(page)

        hands.go_to(page.locator(".cm-content"))
        page.keyboard.press("Control+End")
        page.keyboard.type("# edited")
        hands.press(page.get_by_role("button", name="Save", exact=True), back=True)
        expect(page.get_by_role("status").filter(has_text=f"{name} is saved")).to_be_visible()
        hands.assert_not_lost()
        expect(page.get_by_role("button", name="Save", exact=True)).to_be_disabled()
        assert file.read_text().endswith("# edited")

        hands.write(page.get_by_label("Save as"), f"copy-of-{name}")
        hands.press(page.get_by_role("button", name="Save as new file"))
        expect(page.get_by_role("status").filter(has_text=f"copy-of-{name} is saved")).to_be_visible()
        hands.assert_not_lost()
        assert file.with_name(f"copy-of-{name}").read_text() == file.read_text()

        hands.write(page.get_by_label("Nodes", exact=True), "role=web,node=web*")
        hands.press(page.get_by_role("button", name="Plan on these nodes"))
        expect(page.locator(".planned [role=status]")).to_have_text("Done: 2 would change", timeout=60_000)
        hands.assert_not_lost()
        expect(page.locator(".planned pre").first).to_contain_text("+from web")
        page.evaluate("scrollTo(0, 0)")  # the header covers a part of what is below it
        looks_well(page)
        assert not (studio.fleet.agents["web1"].files / "studio").exists()

        hands.press(page.get_by_role("button", name="Store as a bundle"))
        stored = page.locator(".fleet [role=status]").filter(has_text="Stored.")
        expect(stored).to_contain_text("ccmctl bundle get")
        expect(page.locator(".planned [role=status]")).to_have_text("Done: 2 would change")
        hands.assert_not_lost()
        page.evaluate("scrollTo(0, 0)")  # the header covers a part of what is below it
        looks_well(page)


def test_without_the_right_to_act_no_plan_is_offered(page: Page, site: Site) -> None:
    page.goto(f"{site.address}/studio")
    expect(page.get_by_role("heading", name="On a node")).to_be_visible()

    expect(page.get_by_role("button", name="Plan on these nodes")).to_have_count(0)
    expect(page.get_by_role("button", name="Download")).to_be_visible()
