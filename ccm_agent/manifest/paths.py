"""Paths in a document, from their written form."""

from __future__ import annotations

import re

from ccm_agent.manifest.document import Path

_STEP = re.compile(r'\.([\w-]+)|\[(\d+)\]|\["(.{0,256}?)"\](?=[.\[]|$)')


def parse_path(path: str) -> Path:
    """The steps of a path in writing, such as `$.require[0]`."""
    return tuple(int(found[2]) if found[2] else found[1] or found[3] for found in _STEP.finditer(path))
