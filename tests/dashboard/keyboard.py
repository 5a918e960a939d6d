"""The keyboard alone: what the Tab key reaches on a page, and whether a user sees where the focus is."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Page

FOCUSABLE = """() => {
    const found = [...document.querySelectorAll('a[href], button, input, select, textarea, summary, [tabindex="0"]')];
    return found.filter((one) => !one.disabled && one.checkVisibility({visibilityProperty: true}));
}"""
"""What the Tab key must reach."""

STEP = f"""() => {{
    let one = document.activeElement;
    const place = ({FOCUSABLE})().indexOf(one);
    while (one.shadowRoot?.activeElement) one = one.shadowRoot.activeElement;
    const shown = getComputedStyle(one);
    const box = one.getBoundingClientRect();
    return {{
        place,
        isBody: one === document.body,
        isMarked: shown.outlineStyle !== 'none' || shown.boxShadow !== 'none'
            || one.isContentEditable || one.type === 'datetime-local',
        isInside: box.bottom > 0 && box.right > 0 && box.top < innerHeight && box.left < innerWidth,
        name: one.outerHTML.slice(0, 120),
    }};
}}"""
"""Where the focus is: its place among them, and whether a user sees it. Fields for a time mark their parts by themselves."""

TABS = 150
"""Presses of Tab on one page; long lists are not walked to their end."""


def walk(page: Page) -> tuple[set[int], list[str]]:
    """Press Tab until the page is left: the places that had the focus, and what a user could not see."""
    page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
    seen: set[int] = set()
    problems: list[str] = []
    for _ in range(TABS):
        page.keyboard.press("Tab")
        step = page.evaluate(STEP)
        if step["isBody"]:
            break
        seen.add(step["place"])
        problems += problems_of(step)
    return seen, problems


def problems_of(step: dict[str, Any]) -> list[str]:
    """Why a user does not see where the focus is."""
    if step["isMarked"] and step["isInside"]:
        return []
    return [f"marked {step['isMarked']}, inside {step['isInside']}: {step['name']}"]
