"""
Hooks of the documentation build (see mkdocs.yml): pages from outside docs/, folders in the sidebar, and stricter checks.

A warning fails the build, which runs with --strict.
"""

from __future__ import annotations

import fnmatch
import logging
import posixpath
import shutil
import sys
from pathlib import Path
from typing import Any

from jinja2 import Environment
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).resolve().parent))
import checks

TOP = Path(__file__).resolve().parent.parent.parent
log = logging.getLogger("mkdocs.hooks.site")

PAGES = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing/index.md",
    "SECURITY.md": "contributing/reporting-a-vulnerability.md",
    "tests/conformance/DIFFERENCES.md": "reference/differences.md",
    "tests/conformance/README.md": "contributing/conformance.md",
}
"""Files outside docs/ that become pages of the site."""

EXCLUDED = ("adr/",)
"""Pages that the search leaves out, because old decisions do not answer users' questions."""

BOOSTS = {
    "contributing/": 0.1,
    "changelog.md": 0.1,
    "reference/json.md": 0.5,
    "reference/python-client.md": 0.5,
    "concepts/": 2.0,
    "first-": 2.0,
}
"""The weight of search results on pages with these prefixes. Pages that show how to do a task come first."""

GENERATED = "reference/commands/"
"""Pages that are not edited by hand."""

CHECKED_ONLY = ["README.md"]
"""Files whose links and examples are checked, but that are not pages."""


def published() -> dict[str, str]:
    """Return the page of each published file."""
    inside = {
        str(path.relative_to(TOP)): str(path.relative_to(TOP / "docs"))
        for path in (TOP / "docs").rglob("*.md")
    }
    return {**inside, **PAGES}


def on_startup(command: str, dirty: bool) -> None:
    """Suppress the output of a build without problems."""
    if command == "build":
        logging.getLogger("mkdocs").setLevel(logging.WARNING)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Replace a sidebar entry with `*` by the matching pages of that folder that no other entry names."""
    named = set(entries(config.nav))
    left = sorted(page for page in published().values() if page not in named)
    config.nav = expand(config.nav, left)
    return config


def entries(nav: Any) -> list[str]:
    """Return every page in the sidebar."""
    if isinstance(nav, str):
        return [nav]
    children = nav.values() if isinstance(nav, dict) else nav
    return [page for child in children for page in entries(child)]


def expand(nav: Any, left: list[str]) -> Any:
    """Return the sidebar with its `folder/*.md` replaced."""
    if isinstance(nav, dict):
        return {title: expand(child, left) for title, child in nav.items()}
    if not isinstance(nav, list):
        return nav
    result: list[Any] = []
    for child in nav:
        if isinstance(child, str) and "*" in child:
            folder = posixpath.dirname(child)
            result += [
                page for page in left if posixpath.dirname(page) == folder and fnmatch.fnmatch(page, child)
            ]
        else:
            result.append(expand(child, left))
    return result


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from outside docs/."""
    for source, page in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(TOP / source)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Check a page's title and examples, and convert its links to pages of the site."""
    here = page.file.src_uri
    source = next((name for name, target in PAGES.items() if target == here), f"docs/{here}")
    if not markdown.startswith("# "):
        log.warning("%s: the first line is not a title", source)
    page.meta["search"] = search_settings(here)
    page.edit_url = None if here.startswith(GENERATED) else f"{config.repo_url}/edit/main/{source}"
    report(source, checks.broken_examples(markdown))
    return checks.relink(markdown, source, here, published())


def search_settings(page: str) -> dict[str, float | bool]:
    """Return the settings that the search plugin reads from the head of a page."""
    if page.startswith(EXCLUDED):
        return {"exclude": True}
    boost = next((boost for begin, boost in BOOSTS.items() if page.startswith(begin)), None)
    return {} if boost is None else {"boost": boost}


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Keep the options of command lines on one line."""
    return checks.unbroken_options(html)


def on_env(env: Environment, config: MkDocsConfig, files: Files) -> None:
    """Check the files that are not pages, after the anchors of all pages are known."""
    pages = published()
    for source in CHECKED_ONLY:
        markdown = (TOP / source).read_text()
        report(source, checks.broken_examples(markdown))
        for link in checks.links(markdown):
            path, _, anchor = link.partition("#")
            target = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
            file = files.get_file_from_path(pages.get(target, ""))
            if not (TOP / target).exists():
                log.warning("%s: links to %s, which does not exist", source, link)
            elif anchor and (
                file is None or file.page is None or anchor not in (file.page.present_anchor_ids or ())
            ):
                log.warning("%s: links to %s, but that page has no such heading", source, link)


def on_post_build(config: MkDocsConfig) -> None:
    """Add the schemas at their addresses, and check that a browser loads nothing from other hosts."""
    site = Path(config.site_dir)
    shutil.copytree(TOP / "schemas", site / "schemas", dirs_exist_ok=True)
    for path in sorted([*site.rglob("*.html"), *site.rglob("*.css")]):
        loads = checks.external_loads(path.name, path.read_text())
        report(str(path.relative_to(site)), [f"loads {url}" for url in loads])


def report(source: str, problems: list[str]) -> None:
    """Warn about each problem in a file."""
    for problem in problems:
        log.warning("%s: %s", source, problem)
