"""The keyboard alone: what the Tab key reaches on a page, and whether a user sees where the focus is."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Locator, Page

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

IS_FOCUSED = "(one) => one === one.getRootNode().activeElement"

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


def tab_to(page: Page, target: Locator, *, back: bool = False) -> None:
    """Press Tab until an element has the focus, from where the focus is; a user sees it there."""
    target.wait_for()
    for _ in range(TABS):
        page.keyboard.press("Shift+Tab" if back else "Tab")
        if target.evaluate(IS_FOCUSED):
            assert problems_of(page.evaluate(STEP)) == []
            return
    raise AssertionError(f"{TABS} presses of Tab do not reach {target}")


def assert_focus_is_seen(page: Page) -> None:
    """After an action the focus is on something that a user sees, not lost at the top of the page."""
    step = page.evaluate(STEP)
    assert not step["isBody"]
    assert problems_of(step) == []


class Hands:
    """A user with a mouse, or with the keyboard alone: then each element is reached with Tab, and the focus is always seen."""

    def __init__(self, page: Page, *, is_keyboard: bool) -> None:
        self.page = page
        self.is_keyboard = is_keyboard

    def go_to(self, target: Locator) -> None:
        """Put the focus on a field."""
        if self.is_keyboard:
            tab_to(self.page, target)
        else:
            target.click()

    def press(self, target: Locator, *, back: bool = False) -> None:
        """Press a button."""
        if not self.is_keyboard:
            target.click()
            return
        tab_to(self.page, target, back=back)
        self.page.keyboard.press("Enter")

    def write(self, target: Locator, text: str) -> None:
        """Write into an empty field."""
        if not self.is_keyboard:
            target.fill(text)
            return
        tab_to(self.page, target)
        self.page.keyboard.type(text)

    def choose(self, target: Locator, option: str) -> None:
        """Choose from a list; with the keyboard by the beginning of its name."""
        if not self.is_keyboard:
            target.select_option(option)
            return
        tab_to(self.page, target)
        self.page.keyboard.type(option)

    def assert_not_lost(self) -> None:
        """What was pressed may be gone; the focus is somewhere near."""
        if self.is_keyboard:
            assert_focus_is_seen(self.page)
