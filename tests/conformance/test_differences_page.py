"""The page of differences names every case of `mistakes/` and `ours/` that differs, and nothing else."""

import json
import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
HEADING = "## What the reference gets wrong"


def cases(folder: str) -> dict[tuple[str, int], Any]:
    """Each case by its id and its number among those of this id, without what is only for readers."""
    found: dict[tuple[str, int], Any] = {}
    for path in sorted((HERE / folder).glob("*.json*")):
        text = path.read_text(encoding="utf-8")
        rows = map(json.loads, text.splitlines()) if path.suffix == ".jsonl" else json.loads(text)
        for row in rows:
            number = sum(key[0] == row["id"] for key in found)
            found[row["id"], number] = {key: value for key, value in row.items() if key != "about"}
    return found


def differing() -> set[str]:
    """The ids of the cases that have another outcome here."""
    theirs, ours = cases("mistakes"), cases("ours")
    assert theirs.keys() == ours.keys()
    return {key[0] for key in theirs if theirs[key] != ours[key]}


def patterns() -> list[str]:
    """The patterns in the first column of the page's table."""
    section = (
        (HERE / "DIFFERENCES.md").read_text(encoding="utf-8").partition(HEADING)[2].partition("\n## ")[0]
    )
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return [pattern for row in rows for pattern in re.findall(r"`([^`]+)`", row)]


def test_every_case_that_differs_is_on_the_page() -> None:
    listed = patterns()

    assert len(listed) > 20
    assert [
        one for one in sorted(differing()) if not any(fnmatchcase(one, pattern) for pattern in listed)
    ] == []


def test_every_pattern_of_the_page_has_a_case() -> None:
    known = differing()

    assert [pattern for pattern in patterns() if not any(fnmatchcase(one, pattern) for one in known)] == []
