"""Regular expressions that are compiled at their first use."""

from __future__ import annotations

import re
from typing import Any, cast


class LazyPattern:
    """
    A regular expression that is compiled when it is first used.

    A small command uses few of the patterns in the modules that it imports. Compiling all of them takes a fifteenth of its time.
    """

    def __init__(self, text: str, flags: int) -> None:
        self._source = text, flags

    def __getattr__(self, name: str) -> Any:
        found = getattr(re.compile(*self._source), name)
        setattr(self, name, found)
        return found


def lazy_pattern(text: str, flags: int = 0) -> re.Pattern[str]:
    """Return a pattern that is compiled at its first use."""
    return cast("re.Pattern[str]", LazyPattern(text, flags))
