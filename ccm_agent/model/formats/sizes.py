"""Sizes as people write them: `500MiB`, `2G`, `1048576`. A unit without `i` and `B` is binary, as in coreutils."""

from __future__ import annotations

import re

from ccm_agent.model.errors import DocumentError

_UNITS = ("", "k", "m", "g", "t")
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?)\s?([kmgt]?)(b|ib)?", re.IGNORECASE)


def parse_size(text: str) -> int:
    """
    Return the bytes of a size. `KiB` and `K` are 1024 bytes, `kB` is 1000, and no unit or `B` means bytes.

    Raises:
        DocumentError: The text is not a size; the message shows the syntax.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None or (not found[2] and (found[3] or "").lower() == "ib"):
        raise DocumentError(f"`{text[:40]}` is not a size: write a number and a unit, such as 500MiB or 2GiB")
    base = 1000 if (found[3] or "").lower() == "b" else 1024
    return int(float(found[1]) * base ** _UNITS.index(found[2].lower()))
