"""The page of differences, DIFFERENCES.md: which cases have a line."""

import re

_HEADS = re.compile(r"^- (`[^`]+`(?:,\s+`[^`]+`)*)", re.MULTILINE)


def listed_cases(page: str) -> set[str]:
    """The ids with which the lines of a page begin; a line can be about several, with commas between them."""
    return {case for head in _HEADS.findall(page) for case in re.findall(r"`([^`]+)`", head)}
