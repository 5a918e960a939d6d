#!/usr/bin/env python3
"""
Build the documentation into site/, and fail where a page is broken.

A page is broken when it has no title, when a link or an anchor leads nowhere, when a page is reached from no other, or when
a YAML or JSON example does not parse (`<!-- broken on purpose -->` before it says that it should not).
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path

import yaml
from markdown_it import MarkdownIt
from markdown_it.token import Token

TOP = Path(__file__).resolve().parent.parent
SITE = TOP / "site"
ROOTS = ["README.md", "CHANGELOG.md", "tests/conformance/DIFFERENCES.md"]
NAVIGATION = {
    "README": "Start",
    "docs/quickstart": "Quickstart",
    "docs/index": "Documentation",
    "CHANGELOG": "Changes",
}
STYLE = """
:root { color-scheme: light dark }
body { font: 16px/1.55 system-ui, sans-serif; max-width: 52rem; margin: 2rem auto; padding: 0 1rem }
pre { overflow-x: auto; padding: .8rem; border: 1px solid #8884; border-radius: 6px; font-size: .85rem }
code { font-family: ui-monospace, monospace } table { border-collapse: collapse; display: block; overflow-x: auto }
td, th { border: 1px solid #8886; padding: .3rem .6rem; text-align: left; vertical-align: top }
nav { margin-bottom: 1.5rem } a { color: LinkText } code span { white-space: nowrap }
thead:not(:has(th:not(:empty))) { display: none }
blockquote { margin-left: 0; padding-left: 1rem; border-left: 3px solid #8886 }
@media (max-width: 40rem) { body { margin: 1rem auto } pre { font-size: .75rem } td, th { padding: .2rem .4rem } }
"""


def slug(text: str) -> str:
    """The anchor of a heading, as forges make it."""
    return re.sub(r"\s", "-", re.sub(r"[^\w\- ]", "", text.strip().lower()))


def inline(tokens: list[Token]) -> list[Token]:
    """All tokens, those inside others too."""
    return [t for token in tokens for t in (token, *inline(token.children or []))]


class Page:
    """One page: its tokens, title and anchors."""

    def __init__(self, path: Path, parser: MarkdownIt) -> None:
        self.path = path
        self.tokens = parser.parse(path.read_text())
        heads = [
            self.tokens[i + 1].content for i, token in enumerate(self.tokens) if token.type == "heading_open"
        ]
        self.title = heads[0] if heads else ""
        self.anchors = {slug(re.sub(r"[`*]", "", head)) for head in heads}

    def links(self) -> list[str]:
        """Where its links lead, as written."""
        return [str(t.attrGet("href")) for t in inline(self.tokens) if t.type == "link_open"]

    def problems(self, pages: dict[Path, Page]) -> list[str]:
        """Sentences; empty when the page is well."""
        found = [] if self.title else ["has no title"]
        for link in self.links():
            if re.match(r"[a-z]+:", link):
                continue
            name, _, anchor = link.partition("#")
            target = (self.path.parent / name).resolve() if name else self.path
            if not target.exists():
                found.append(f"links to {link}, which is not there")
            elif anchor and target in pages and anchor not in pages[target].anchors:
                found.append(f"links to {link}, but that page has no such heading")
        return found + self.broken_examples()

    def files(self, pages: dict[Path, Page]) -> list[Path]:
        """What it links to besides pages: files that the site holds as they are."""
        targets = ((self.path.parent / link.partition("#")[0]).resolve() for link in self.links())
        return [target for target in targets if target.is_file() and target not in pages]

    def broken_examples(self) -> list[str]:
        """Examples that do not parse."""
        found, forgiven = [], False
        for token in self.tokens:
            if token.type == "html_block":
                forgiven = "broken on purpose" in token.content
            elif token.type == "fence":
                try:
                    if token.info.strip() == "yaml":
                        list(yaml.safe_load_all(token.content))
                    elif token.info.strip() == "json":
                        json.loads(token.content)
                except (yaml.YAMLError, ValueError) as err:
                    if not forgiven:
                        line = (token.map or [0])[0] + 1
                        found.append(
                            f"has an example in line {line} that does not parse: {str(err).splitlines()[0]}"
                        )
                forgiven = False
        return found


def code_inline(
    _renderer: object, tokens: Sequence[Token], place: int, _options: object, _env: object
) -> str:
    """Code within a line, which breaks between words and not behind the dashes of an option."""
    text = re.sub(r"(?<![^ ])-[^ ]+", r"<span>\g<0></span>", escape(tokens[place].content))
    return f"<code>{text}</code>"


def render(page: Page, parser: MarkdownIt, at: Path) -> str:
    """The page as HTML, links to pages turned into links to their HTML."""
    for token in inline(page.tokens):
        if token.type == "link_open" and not re.match(r"[a-z]+:", link := str(token.attrGet("href"))):
            token.attrSet("href", re.sub(r"\.md(?=#|$)", ".html", link))
    for i, token in enumerate(page.tokens):
        if token.type == "heading_open":
            token.attrSet("id", slug(re.sub(r"[`*]", "", page.tokens[i + 1].content)))
    body = parser.renderer.render(page.tokens, parser.options, {})
    up = "../" * (len(at.relative_to(SITE).parts) - 1)
    links = " · ".join(f'<a href="{up}{to}.html">{text}</a>' for to, text in NAVIGATION.items())
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(page.title)}</title><style>{STYLE}</style>"
        f"<nav>{links}</nav>{body}</html>"
    )


def main() -> int:
    """Build; the exit status."""
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    parser.add_render_rule("code_inline", code_inline)
    paths = [TOP / name for name in ROOTS if (TOP / name).exists()] + sorted((TOP / "docs").rglob("*.md"))
    pages = {path: Page(path, parser) for path in paths}
    wrong = [
        f"{path.relative_to(TOP)}: {why}" for path, page in pages.items() for why in page.problems(pages)
    ]
    reached = {
        (page.path.parent / link.partition("#")[0]).resolve()
        for page in pages.values()
        for link in page.links()
    }
    wrong += [
        f"{p.relative_to(TOP)}: no page links to it"
        for p in pages
        if p.name not in ROOTS and p not in reached
    ]
    for line in wrong:
        print(line, file=sys.stderr)
    if wrong:
        return 1
    shutil.rmtree(SITE, ignore_errors=True)
    for path, page in pages.items():
        at = SITE / path.relative_to(TOP).with_suffix(".html")
        at.parent.mkdir(parents=True, exist_ok=True)
        at.write_text(render(page, parser, at))
        for other in page.files(pages):
            (SITE / other.relative_to(TOP)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(other, SITE / other.relative_to(TOP))
    print(f"docs: {len(pages)} pages in {SITE.relative_to(TOP)}/")
    return 0


if __name__ == "__main__":
    sys.exit(main())
