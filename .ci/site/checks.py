"""
The documentation site's requirements for its pages, in addition to the checks of MkDocs: pure functions on text.

`hooks.py` uses them during the build, and tests/unit/test_site.py tests them.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser

import yaml

ON_PURPOSE = "broken on purpose"

_FENCE = re.compile(r"^(?P<indent> *)(?P<mark>```+|~~~+) *(?P<language>[\w-]*)")
_LINK = re.compile(r"(?P<before>\]\()(?P<target>[^)\s]+)\)")
_OTHER_SCHEME = re.compile(r"[a-z]+:|#")
_INLINE_CODE = re.compile(r'(?<!">)<code>([^<]*)</code>')
_OPTION = re.compile(r"(?<![^ ])-[^ ]+")
_CSS_URL = re.compile(r"url\(\s*['\"]?(?P<url>[^'\")]+)|@import\s+['\"](?P<imported>[^'\"]+)")

_LINKED_ONLY = {"canonical", "next", "prev", "edit"}
"""Relations of a `link` element that refer to another page, which browsers do not load."""


def blocks(markdown: str) -> Iterator[tuple[int, str, str, str]]:
    """
    Return the fenced code blocks of a page.

    Yields:
        For each block: the number of its first line, its language (or ""), its text, and the last non-blank line before it.
    """
    before, fence, start, inside = "", None, 0, []  # type: str, re.Match[str] | None, int, list[str]
    for number, line in enumerate(markdown.splitlines(), 1):
        if fence is None:
            fence = _FENCE.match(line)
            start, inside = number, []
            if fence is None and line.strip():
                before = line.strip()
        elif line.strip() == fence["mark"]:
            yield start, fence["language"], "\n".join(inside) + "\n", before
            fence, before = None, ""
        else:
            inside.append(line.removeprefix(fence["indent"]))


def broken_examples(markdown: str) -> list[str]:
    """Return a message for each YAML or JSON example that does not parse and is not marked `<!-- broken on purpose -->`."""
    found = []
    for line, language, text, before in blocks(markdown):
        try:
            if language == "yaml":
                list(yaml.compose_all(text, Loader=yaml.SafeLoader))
            elif language == "json":
                json.loads(text)
        except (yaml.YAMLError, ValueError) as err:
            if ON_PURPOSE not in before:
                found.append(f"the example in line {line} does not parse: {str(err).splitlines()[0]}")
    return found


def relink(markdown: str, source: str, page: str, published: Mapping[str, str]) -> str:
    """
    Convert links between files of the repository into links between pages of the site.

    Args:
        markdown: The text of a page. Links in code blocks are not changed.
        source: The file that contains the text, relative to the repository.
        page: The resulting page, relative to the site's pages.
        published: The page of each published file.
    """

    def rewrite(link: re.Match[str]) -> str:
        if _OTHER_SCHEME.match(link["target"]):
            return link[0]
        path, mark, anchor = link["target"].partition("#")
        target = published.get(posixpath.normpath(posixpath.join(posixpath.dirname(source), path)))
        if target is None:
            return link[0]
        return f"{link['before']}{posixpath.relpath(target, posixpath.dirname(page) or '.')}{mark}{anchor})"

    lines, fence = [], None  # type: list[str], re.Match[str] | None
    for line in markdown.splitlines():
        if fence is None:
            fence = _FENCE.match(line)
            lines.append(line if fence else _LINK.sub(rewrite, line))
        else:
            fence = None if line.strip() == fence["mark"] else fence
            lines.append(line)
    return "\n".join(lines) + "\n"


def links(markdown: str) -> list[str]:
    """Return the targets of a text's links to files."""
    found = [link["target"] for line in markdown.splitlines() for link in _LINK.finditer(line)]
    return [target for target in found if not _OTHER_SCHEME.match(target)]


def unbroken_options(html: str) -> str:
    """Return a page's HTML, changed so that browsers do not break an option such as `--server` after its dashes."""

    def rewrite(code: re.Match[str]) -> str:
        return f"<code>{_OPTION.sub(lambda option: f'<span>{option[0]}</span>', code[1])}</code>"

    return _INLINE_CODE.sub(rewrite, html)


class _Loads(HTMLParser):
    """Collects the URLs that a browser loads for a page. Plain links are not loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.urls: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "link" and _LINKED_ONLY.intersection((dict(attrs).get("rel") or "").split()):
            return
        for name, value in attrs:
            is_loaded = name in {"src", "srcset", "data", "poster"} or (
                name == "href" and tag in {"link", "image", "use"}
            )
            if is_loaded and value:
                self.urls.append(value)
            elif name == "style" and value:
                self.urls += css_loads(value)


def css_loads(css: str) -> list[str]:
    """Return the URLs that a style sheet loads."""
    return [found["url"] or found["imported"] for found in _CSS_URL.finditer(css)]


def external_loads(name: str, text: str) -> list[str]:
    """
    Return the URLs on other hosts that a browser would load for a file of the site: scripts, styles, fonts, pictures.

    Args:
        name: The file's name. Its extension shows whether it is HTML or CSS. All other files load nothing.
        text: Its content.
    """
    if name.endswith(".css"):
        urls = css_loads(text)
    elif name.endswith(".html"):
        page = _Loads()
        page.feed(text)
        inline = "".join(re.findall(r"<style[^>]*>(.*?)</style>", text, re.DOTALL))
        urls = page.urls + css_loads(inline)
    else:
        urls = []
    return [url for url in urls if re.match(r"(https?:)?//", url)]
