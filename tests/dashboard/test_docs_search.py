"""The search of the documentation site, in a browser: pages for users come first, and decision records are not found."""

from __future__ import annotations

import functools
import http.server
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page

from tests.dashboard.conftest import context_of
from tests.support.pages import TOP

pytestmark = pytest.mark.timeout(180)

SHOWN = 3
INSIDE = ("adr/", "contributing/", "changelog.html")


def newest(*paths: Path) -> float:
    """When the last of these files was written."""
    return max(path.stat().st_mtime for path in paths)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site: what `make docs` built, if it is up to date."""
    pytest.importorskip("mkdocs", reason="make docs installs mkdocs")
    sources = [*(TOP / "docs").rglob("*.md"), *(TOP / ".ci/site").glob("*.py"), TOP / "mkdocs.yml"]
    made = TOP / "site"
    if not (made / "index.html").exists() or newest(made / "index.html") < newest(*sources):
        made = tmp_path_factory.mktemp("docs") / "site"
        command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(made)]
        subprocess.run(command, cwd=TOP, check=True, capture_output=True)
    return made


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files, and logs nothing."""

    def log_message(self, format: str, *args: object) -> None:
        """Drop it."""


@pytest.fixture(scope="module")
def search(built: Path, browser: Browser) -> Iterator[Page]:
    """The site's first page."""
    handler = functools.partial(Quiet, directory=str(built))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            with context_of(browser) as context:
                page = context.new_page()
                page.goto(f"http://127.0.0.1:{server.server_port}/index.html")
                yield page
        finally:
            server.shutdown()
            thread.join()


def results(page: Page, words: str) -> list[str]:
    """The addresses of the first pages that a search shows."""
    page.goto(f"{page.url.partition('?')[0]}?q={words}")
    links = page.locator(".md-search-result__item > .md-search-result__link")
    links.first.wait_for(state="attached")
    found = [str(link.get_attribute("href")) for link in links.all()[:SHOWN]]
    return [urlsplit(address).path.removeprefix("/") for address in found]


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("undo", "concepts/after-the-run.html"),
        ("dry run", "concepts/plan.html"),
        ("diff", "concepts/plan.html"),
        ("rollback", "reference/commands/ccmctl-rollback.html"),
        ("rollout", "concepts/rollouts.html"),
        ("credentials", "concepts/authorization.html"),
    ],
)
def test_search_finds_the_page_for_users_first(search: Page, words: str, page: str) -> None:
    found = results(search, words)

    assert page in found, found
    assert not any(address.startswith(INSIDE) for address in found)


def test_decision_records_are_not_in_the_index(built: Path) -> None:
    entries = json.loads((built / "search/search_index.json").read_text())["docs"]

    assert {entry["location"].partition("/")[0] for entry in entries} >= {
        "concepts",
        "reference",
        "contributing",
    }
    assert [entry["location"] for entry in entries if entry["location"].startswith("adr/")] == []


def test_schemas_are_at_the_address_that_is_their_id(built: Path) -> None:
    for path in sorted((TOP / "schemas/v1").glob("*.json")):
        address = urlsplit(json.loads(path.read_text())["$id"])

        assert address.scheme == "https"
        assert (built / address.path.removeprefix("/ccm-fleet/")).read_text() == path.read_text()


def test_pages_have_their_address_and_a_link_to_their_source(built: Path) -> None:
    page = (built / "concepts/plan.html").read_text()

    assert '<link rel="canonical" href="https://ccm-fleet.github.io/ccm-fleet/concepts/plan.html">' in page
    assert "https://github.com/ccm-fleet/ccm-fleet/edit/main/docs/concepts/plan.md" in page
    assert "/edit/main/CHANGELOG.md" in (built / "changelog.html").read_text()
    assert "/edit/" not in (built / "reference/commands/ccmctl-run.html").read_text()
