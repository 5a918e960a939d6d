"""The diagrams of the docs, drawn by the script that the site brings along."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser

from tests.dashboard.conftest import context_of
from tests.support.diagrams import TOP, pages_with_diagrams

SCRIPT = TOP / ".ci/site/overrides/assets/vendor/mermaid.tiny.js"
MOST_WIDE_PX = 700
"""A wider diagram cannot be read on a phone: pages shrink it to their width."""


@pytest.mark.parametrize(("page", "text"), list(pages_with_diagrams()))
def test_diagram_is_drawn_without_a_network_and_fits_a_phone(browser: Browser, page: str, text: str) -> None:
    del page
    with context_of(browser, offline=True) as context:
        opened = context.new_page()
        opened.add_script_tag(path=SCRIPT)
        width = opened.evaluate(
            """async (text) => {
                mermaid.initialize({startOnLoad: false})
                document.body.innerHTML = (await mermaid.render("drawn", text)).svg
                return document.querySelector("svg").viewBox.baseVal.width
            }""",
            text,
        )

    assert 0 < width <= MOST_WIDE_PX
