"""
The command reference of `ccm` and `ccmctl`, in Markdown, from the same help screens as the man pages.

There is one page for each program, with the common options, and one for each of its commands, with their subcommands.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from help_screens import EXIT_CODES, Screen, screens
from tables import plain, table

from ccm_agent.cli.program import TASKS as HOST_TASKS
from ccm_ctl.commands.command_tree import TASKS as FLEET_TASKS

EXIT_SENTENCE = re.compile(r"^Exit codes?: ")
HELP = "-h, --help"
"""Every command has this option, so only the page of the program describes it."""

COMMON = 3
"""If at least this many commands have an option with the same meaning, the page of the program describes it."""

EVERY_TYPE = "Properties of every resource"
PROPERTIES = "Properties of "
"""The beginning of section titles whose options are described on the page of a resource type."""

TASKS = {title for tasks in (HOST_TASKS, FLEET_TASKS) for title in tasks} | {"Commands"}
"""Titles of sections that list commands."""

SHARED_SECTIONS = ("Targets", "Rollout", EVERY_TYPE)
"""Sections whose common options are in one table, so that a page names only the section if its command has all of them."""

HEADS = {"Arguments": "Argument", "Options": "Option", "Commands": "Command"}
"""The heading of the first column, if it is not the title of the section."""

Row = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class SharedOptions:
    """
    The options of several commands of a program, described on the page of the program.

    Attributes:
        common: The options that have the same meaning in all commands.
        by_all: Names of the options that every command has, except the help option.
        groups: The options in a section that occurs in several screens, by its title.
    """

    common: list[Row]
    by_all: list[str]
    groups: dict[str, list[Row]]


def command_pages() -> dict[str, str]:
    """Return the text of each page, by its file name."""
    pages = {}
    for program, found in groupby(screens(), key=lambda screen: screen.path[0]):
        all_screens = list(found)
        shared = _shared(all_screens)
        for verb, below in groupby(all_screens, key=lambda screen: screen.path[1:2]):
            name = "-".join([program, *verb])
            of_page = list(below)
            every = _every(of_page[1:], shared)
            if len(of_page) > 1:
                of_page[0].examples = []  # the commands below have more examples
            parts = [part for screen in of_page for part in _command(screen, shared, every)]
            if not verb:
                parts += _of_program(program, shared)
            pages[f"{name}.md"] = "\n\n".join(parts) + "\n"
    return pages


def exit_codes(program: str) -> str:
    """Return the exit codes of a program."""
    return table(["Exit code", "Meaning"], EXIT_CODES[program])


def _common(all_screens: list[Screen]) -> list[Row]:
    rows = Counter(
        row for screen in all_screens[1:] for title, rows in screen.sections.items() if title not in TASKS
        for row in rows if row[0].startswith("-") and row[0] != HELP
    )  # fmt: skip
    most = {name: text for (name, text), times in reversed(rows.most_common()) if times >= COMMON}
    return sorted(most.items(), key=lambda row: row[0].lstrip("-"))


def _shared(all_screens: list[Screen]) -> SharedOptions:
    common = _common(all_screens)
    return SharedOptions(
        common=common, by_all=_taken_by_all(all_screens), groups=_groups(all_screens, common)
    )


def _taken_by_all(all_screens: list[Screen]) -> list[str]:
    """Return the options that every command has, except the help option."""
    taken = [{name for rows in screen.sections.values() for name, _ in rows} for screen in all_screens]
    return sorted(name for name in set.intersection(*taken) if name.startswith("-") and name != HELP)


def _every(below: list[Screen], shared: SharedOptions) -> list[str]:
    """Return the common options that every command in a group has, if there are several."""
    taken = [
        [
            name
            for rows in screen.sections.values()
            for name, text in rows
            if (name, text) in shared.common and name not in shared.by_all
        ]
        for screen in below
    ]
    return [name for name in taken[0] if all(name in other for other in taken)] if len(taken) > 1 else []


def _groups(all_screens: list[Screen], common: list[Row]) -> dict[str, list[Row]]:
    """Return the common options of each section that several commands share."""
    found: dict[str, list[Row]] = {}
    for title in SHARED_SECTIONS:
        taken = [row for screen in all_screens for row in screen.sections.get(title, ())]
        if rows := [row for row in common if row in taken]:
            found[title] = rows
    return found


def _options(rows: list[Row]) -> str:
    return table(["Option", "Meaning"], [(f"`{name}`", plain(text)) for name, text in rows])


def _of_program(program: str, shared: SharedOptions) -> Iterator[str]:
    yield "## Common options"
    names = " and ".join(f"`{name}`" for name in [HELP, *shared.by_all])
    yield f"Every command takes {names}. The page of each command names those of the other options that it takes."
    yield _options([row for row in shared.common if not any(row in rows for rows in shared.groups.values())])
    for title, rows in shared.groups.items():
        yield f"### {title}"
        yield _options(rows)
    yield f"[Exit codes](../error-codes.md#exit-codes-of-{program})"


def _command(screen: Screen, shared: SharedOptions, every: list[str]) -> Iterator[str]:
    is_below = len(screen.path) > 2
    yield f"{'#' * max(len(screen.path) - 1, 1)} {screen.name}"
    exits = [text for text in screen.paragraphs if EXIT_SENTENCE.match(text)]
    yield from (_paragraph(text) for text in screen.paragraphs if text not in exits)
    if usage := _usage(screen):
        yield f"```text\n{usage}\n```"
    taken = []
    for title, rows in screen.sections.items():
        if title in TASKS and len(screen.path) > 1:
            continue  # the headings below list them
        own = [row for row in rows if row not in shared.common and row[0] != HELP]
        elsewhere = [*shared.by_all, *(every if is_below else ())]
        taken += [name for name, text in rows if (name, text) in shared.common and name not in elsewhere]
        if own and title.startswith(PROPERTIES) and title != EVERY_TYPE:
            page = f"../../resources/{screen.path[-1]}.md"
            yield f"[{title}]({page}): " + ", ".join(f"`{name}`" for name, _ in own) + "."
        elif own:
            cells = [(_name(screen, title, name), plain(text)) for name, text in own]
            yield table([HEADS.get(title, title), "Meaning"], cells)
    if not is_below and len(screen.path) > 1 and every:
        page = f"{screen.path[0]}.md#common-options"
        yield f"[Common options]({page}) of all commands on this page: {_names(every, shared, screen)}."
    elif taken:
        page = f"{screen.path[0]}.md#common-options"
        yield f"[Common options]({page}): {_names(taken, shared, screen)}."
    if screen.examples:
        # not `sh`: tests run such blocks, but the files and nodes in these examples do not exist there
        yield "\n".join(["```text", *screen.examples, "```"])
    yield from (plain(text) for text in exits)


def _usage(screen: Screen) -> str:
    """Return the usage of a command, unless its name contains it, without the word for options, which the tables list."""
    usage = screen.usage.replace(" [OPTIONS]", "").removesuffix(" COMMAND [ARGS]...")
    return "" if usage == screen.name else usage


def _names(options: list[str], shared: SharedOptions, screen: Screen) -> str:
    """
    Return the common options of a command. A section of them becomes a link, with the options that the command does not have.
    """
    parts = []
    left = list(options)
    for title, rows in shared.groups.items():
        lacks = [name for name, _ in rows if name not in options]
        if len(lacks) <= len(rows) / 3:
            page = f"{screen.path[0]}.md#{title.lower().replace(' ', '-')}"
            without = ", ".join(f"`{_spelling(name)}`" for name in lacks)
            parts.append(f"[{title}]({page})" + (f" (without {without})" if lacks else ""))
            left = [name for name in left if name not in dict(rows)]
    return ", ".join([*parts, *(f"`{_spelling(name)}`" for name in left)])


def _spelling(name: str) -> str:
    """Return an option without its value."""
    return re.sub(r"(--[\w-]+) (?![-/]).*", r"\1", name)


def _paragraph(text: str) -> str:
    """Format a paragraph. Line breaks within it are kept."""
    return f"```text\n{text}\n```" if "\n" in text else plain(text)


def _name(screen: Screen, title: str, name: str) -> str:
    """Return the first cell of a row. A command becomes a link to its page, or to its section of this page."""
    if title not in TASKS:
        return f"`{name}`"
    path = [*screen.path, name]
    target = f"{'-'.join(path)}.md" if len(path) == 2 else f"#{'-'.join(path)}"
    return f"[`{' '.join(path)}`]({target})"
