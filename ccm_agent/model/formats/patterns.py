"""Regular expressions that are compiled on first use."""

from __future__ import annotations

import re
from typing import Any, cast


class LazyPattern:
    """
    A regular expression that is compiled on first use.

    A small command uses few of the patterns in the modules that it imports. Compiling all of them would
    take a fifteenth of its run time.
    """

    def __init__(self, text: str, flags: int) -> None:
        self._source = text, flags

    def __getattr__(self, name: str) -> Any:
        found = getattr(re.compile(*self._source), name)
        setattr(self, name, found)
        return found


def lazy_pattern(text: str, flags: int = 0) -> re.Pattern[str]:
    """Return a pattern that is compiled on first use."""
    return cast("re.Pattern[str]", LazyPattern(text, flags))
