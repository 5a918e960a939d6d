"""The documentation for users: how long it is, how near each task is, and the words that it explains."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
DOCS = TOP / "docs"

MOST_WORDS = 68_881
"""The pages together may not grow beyond this."""

INSIDE = ("adr", "contributing")
"""Folders of docs/ for those who change the program."""

OUTSIDE = ["README.md", "tests/conformance/DIFFERENCES.md"]
"""What users read that does not lie in docs/."""

TASKS = [
    ("declare a file and apply it", "first-manifest.md", "ccm apply hello.yaml"),
    ("see what would change here", "first-manifest.md", "ccm apply hello.yaml --noop --diff"),
    ("check a manifest", "first-manifest.md", "ccm lint"),
    ("run a manifest on nodes", "first-fleet.md", "ccmctl apply site/ --targets role=web"),
    ("undo a run", "first-fleet.md", "ccmctl undo last"),
    ("list nodes", "first-fleet.md", "ccmctl node list"),
    ("assign a fact", "first-fleet.md", "ccmctl facts set"),
    ("see what would change on nodes", "concepts/plan.md", "ccmctl plan"),
    ("run a command on nodes", "concepts/commands.md", "ccmctl exec"),
    ("keep nodes in a state", "concepts/assignments.md", "ccmctl assign"),
    ("return to the previous revision", "concepts/assignments.md", "ccmctl rollback"),
    ("change nodes in waves", "concepts/rollouts.md", "--batch"),
    ("run at set times", "concepts/schedules.md", "ccmctl schedule add"),
    ("give nodes data", "concepts/versioned-data.md", "ccmctl data put"),
    ("issue credentials of a node", "concepts/authorization.md", "ccmctl node add"),
    ("issue credentials of an operator", "concepts/authorization.md", "ccmctl operator add"),
    ("find out why a node fails", "concepts/troubleshooting.md", "ccmctl why"),
    ("check security and health", "concepts/doctor.md", "ccmctl doctor"),
    ("pause changes on a node", "concepts/local-administration.md", "ccmctl disable"),
    ("open the dashboard", "concepts/dashboard.md", "ccmctl dashboard"),
]
"""The commonest tasks: each with the page that shows how, and what is typed."""

MOST_LINKS = 2
NAME_OF_TEST = re.compile(r"`tests/[\w/]+\.py::\w+`")
LINK = re.compile(r"\]\((?P<path>[^)#\s]+\.md)(?:#[^)]*)?\)")


def users_pages() -> Iterator[Path]:
    """The pages for users."""
    yield from (TOP / name for name in OUTSIDE)
    yield from (path for path in sorted(DOCS.rglob("*.md")) if path.parent.name not in INSIDE)


def words(page: str) -> int:
    """How many words a page shows, those of its tables and examples included, names of tests left out."""
    shown = NAME_OF_TEST.sub("", re.sub(r"<!--.*?-->", "", page, flags=re.DOTALL))
    return sum(1 for word in shown.split() if re.search(r"\w", word))


def distances() -> dict[str, int]:
    """How many links lead from Home to each page."""
    found, near = {"index.md": 0}, ["index.md"]
    while near:
        page = near.pop(0)
        for link in LINK.finditer((DOCS / page).read_text()):
            target = posixpath.normpath(posixpath.join(posixpath.dirname(page), link["path"]))
            if target not in found and (DOCS / target).is_file():
                found[target] = found[page] + 1
                near.append(target)
    return found


def test_words_of_tables_and_examples_count_and_comments_do_not() -> None:
    assert (
        words("# One two\n\n| three | `four` |\n|---|---|\n<!-- not\nshown -->\n```sh\nfive --six\n```\n")
        == 7
    )


def test_names_of_tests_do_not_count() -> None:
    assert words("| one | two `tests/unit/test_a.py::test_b` `tests/unit/test_a.py::test_c` |\n") == 2


def test_users_read_at_most_the_words_of_the_budget() -> None:
    lengths = {str(path.relative_to(TOP)): words(path.read_text()) for path in users_pages()}
    longest = sorted(lengths, key=lambda name: -lengths[name])[:10]

    total = sum(lengths.values())
    print(f"{total} words for users, of {MOST_WORDS} allowed")
    assert total <= MOST_WORDS, [(name, lengths[name]) for name in longest]


@pytest.mark.parametrize(("task", "page", "command"), TASKS, ids=[task for task, _, _ in TASKS])
def test_command_of_a_common_task_is_near_home(task: str, page: str, command: str) -> None:
    del task

    assert distances()[page] <= MOST_LINKS
    assert command in (DOCS / page).read_text()


def test_tables_stand_apart_from_the_text_before() -> None:
    joined = [
        f"{path.name}: {before}"
        for path in users_pages()
        for before, line in pairwise(re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL).splitlines())
        if line.startswith("|") and before and not before.startswith("|")
    ]

    assert joined == []


def test_tasks_are_twenty() -> None:
    assert len(TASKS) == 20


def test_every_command_has_a_page_that_the_program_links() -> None:
    folder = DOCS / "reference/commands"
    for program in ("ccm", "ccmctl"):
        linked = {link["path"] for link in LINK.finditer((folder / f"{program}.md").read_text())}

        assert {path.name for path in folder.glob(f"{program}-*.md")} == linked - {
            f"{program}.md",
            "../error-codes.md",
        }


def test_glossary_for_users_has_about_forty_words_in_order() -> None:
    terms = re.findall(
        r"^\| \*\*(.+?)\*\* \| \S.* \|$", (DOCS / "reference/glossary.md").read_text(), re.MULTILINE
    )

    assert 35 <= len(terms) <= 45
    assert terms == sorted(terms)
