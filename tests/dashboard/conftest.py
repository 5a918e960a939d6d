"""Fixtures of the tests in a browser: a fleet of real processes, its dashboard, and the Chromium of the distribution."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.support.fleet import Controller, Fleet, fleet

AXE = Path(__file__).parent / "vendor/axe.js"
CHROMIUM = next((path for name in ("chromium", "chromium-browser") if (path := shutil.which(name))), "")
WAIT_MS = 20_000
"""How long a page may take for what it is to show; only a failure takes so long."""

expect.set_options(timeout=WAIT_MS)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without a browser there is nothing to drive; `.ci/test.py` says so for the whole tier."""
    if not CHROMIUM:
        reason = "no chromium; on Debian: apt-get install chromium"
        for item in items:
            if item.path.is_relative_to(Path(__file__).parent):
                item.add_marker(pytest.mark.skip(reason=reason))


class Site:
    """A fleet and its dashboard."""

    def __init__(self, built: Fleet) -> None:
        self.fleet = built
        self.process: Controller | None = None
        self.address = ""
        self._signed_in: tuple[str, Any] = ("", None)

    def serve(self, *arguments: str, port: int = 0) -> str:
        """Start the dashboard; the address that opens once."""
        self.process = self.fleet.begin("dashboard", "--port", str(port), *arguments)
        self.fleet.wait_for(lambda: self.printed, "the dashboard to print its address")
        self.address = self.printed.partition("/#")[0]
        return self.printed

    @property
    def printed(self) -> str:
        """The address that was printed last: each of them opens once."""
        assert self.process is not None
        lines = self.process.so_far.out.splitlines()
        return lines[-1] if lines else ""

    def signed_in(self, browser: Browser) -> Any:
        """The cookies of a browser that has signed in, which tests share: for `storage_state`."""
        if self._signed_in[0] != self.address:
            with context_of(browser) as context:
                page = context.new_page()
                page.goto(self.printed)
                page.wait_for_selector("nav")
                self._signed_in = (self.address, context.storage_state())
        return self._signed_in[1]

    def stop(self) -> None:
        """End the dashboard."""
        assert self.process is not None
        self.process.kill()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One Chromium for the tests of a module: while it runs, the thread has an event loop, which other tests would find."""
    with sync_playwright() as playwright:
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=options)
        yield started
        started.close()


@contextlib.contextmanager
def context_of(browser: Browser, **settings: Any) -> Iterator[BrowserContext]:
    """A browser with cookies of its own. What a page reports as an error fails the test."""
    problems: list[str] = []
    # without motion: axe-core would measure colors in the middle of a transition
    usual = {"viewport": {"width": 1280, "height": 900}, "reduced_motion": "reduce"}
    context = browser.new_context(**usual | settings)
    context.set_default_timeout(WAIT_MS)
    context.on(
        "weberror",
        lambda error: problems.append(f"{error.page.url if error.page else None}: {error.error.stack}"),
    )
    context.on("console", lambda message: problems.append(message.text) if is_problem(message) else None)
    context.on("dialog", lambda dialog: problems.append(f"dialog: {dialog.message}"))
    try:
        yield context
    finally:
        context.close()
    assert problems == []


def is_problem(message: Any) -> bool:
    """An error that a page wrote; that an answer was not 200 is what some tests are about."""
    return (
        message.type == "error"
        and "Failed to load resource" not in message.text
        and "net::" not in message.text
    )


@pytest.fixture
def page(browser: Browser, site: Site) -> Iterator[Page]:
    """An empty page in a browser of its own, which is signed in."""
    with context_of(browser, storage_state=site.signed_in(browser)) as context:
        yield context.new_page()


def serious(page: Page) -> list[str]:
    """What axe-core finds that keeps people out: rules of WCAG 2.2 AA, serious and critical."""
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(AXE.read_text())
    found = page.evaluate(
        "async () => (await axe.run(document, {runOnly: ['wcag2a','wcag2aa','wcag21a','wcag21aa','wcag22aa']})).violations"
    )
    return [
        f"{one['id']}: {json.dumps([(node['html'][:200], node.get('failureSummary')) for node in one['nodes'][:3]])}"
        for one in found
        if one["impact"] in ("serious", "critical")
    ]


def looks_well(page: Page) -> None:
    """The content fits the width of the page, and axe finds nothing serious."""
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    # the header that stays covers a part of whatever is scrolled below it
    page.evaluate("scrollTo(0, 0)")
    assert serious(page) == []


def looks_well_everywhere(page: Page) -> None:
    """The same on a wide screen and on a phone, in light and dark colors."""
    for width in (1280, 375):
        page.set_viewport_size({"width": width, "height": 800})
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            looks_well(page)


class Way(Struct, frozen=True, kw_only=True):
    """How a user works: on which screen, in which colors, and with what."""

    name: str
    settings: dict[str, Any]
    is_keyboard: bool

    def __str__(self) -> str:
        return self.name


WAYS = (
    Way(name="mouse", settings={"viewport": {"width": 1280, "height": 900}}, is_keyboard=False),
    Way(
        name="keyboard on a dark phone",
        settings={"viewport": {"width": 375, "height": 800}, "color_scheme": "dark"},
        is_keyboard=True,
    ),
)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Three nodes with assignments, one that fails, one that was never seen, and a dashboard without actions."""
    with fleet(tmp_path_factory.mktemp("fleet")) as built:
        prepare(built)
        made = Site(built)
        made.serve()
        yield made


@pytest.fixture(scope="session")
def acting(site: Site) -> Iterator[Site]:
    """A dashboard with actions on the same fleet."""
    made = Site(site.fleet)
    made.serve("--allow-actions")
    yield made
    made.stop()


SCRIPT = "<script>document.title='owned'</script><img src=x onerror=alert(1)>"
"""What a hostile node writes wherever it can."""


def prepare(built: Fleet) -> None:
    """web1 and web2 converge, db1 fails, old1 has never connected; every text of a node is hostile."""
    from tests.support.fleet import a_file, manifest

    settings = {"interval": "1h", "change_pause": "0s"}
    built.add("web1", "web2", "db1", **settings)
    assert built.ctl("facts", "set", "web1", "web2", "role=web", f"motto={SCRIPT}").code == 0
    assert built.ctl("facts", "set", "db1", "role=db").code == 0
    assert built.ctl("facts", "set", "old1", "role=web", "--new").code == 0
    fine = built.write("web.yaml", manifest(a_file("motd")))
    failing = ("exec", f"migrate {SCRIPT}", {"command": "sh -c 'echo \"<script>alert(2)</script>\"; exit 3'"})
    broken = built.write("db.yaml", manifest(a_file("db"), failing))
    assert built.ctl("assign", "web", fine, "--targets", "role=web", "--yes").code == 0
    assert built.ctl("assign", "database", broken, "--targets", "role=db", "--yes").code == 0
    # 3: old1 is not there
    for name, code in (("web", 3), ("database", 2)):
        done = built.ctl("assignment", "status", name, "--wait", "60s")
        assert done.code == code, done.out + done.err
