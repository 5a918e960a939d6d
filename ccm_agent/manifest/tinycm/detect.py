"""Distinguishes TinyCM's manifests from ours. Every `ccm apply` calls it, so it must be fast."""

from __future__ import annotations

import re

from ccm_agent.model.formats.patterns import lazy_pattern

_ENDINGS = (".cm.yml", ".cm.yaml")
_OURS = ("\nccm:", '\n"ccm"', "\n'ccm'")
_THEIRS = ("\nglobal:", "\nhost:", "\nhosts:")
_SEPARATOR = lazy_pattern(r"^---(?=\s|$).*", re.MULTILINE)
_FIRST_LINE = lazy_pattern(r"^(?=[ \t]*[^\s#]).*", re.MULTILINE)
_KEY = lazy_pattern(r"^([ ]*)([\"']?)([A-Za-z][\w-]{0,40})\2[ \t]*:(?=\s|$)", re.MULTILINE)
_OF_A_FILE = {"ensure", "contents", "permission-mask", "permission_mask"}
_OWN_TYPE = ({"file"}, {"package"})


def is_tinycm(name: str, text: str) -> bool:
    """
    Whether a manifest is TinyCM's.

    This is the case if its name is like `*.cm.yml`. Otherwise it must have no `ccm` section, and either begin
    with `global` or `hosts` or have a document that defines a file or a package.
    """
    if name.partition("?")[0].endswith(_ENDINGS):
        return True
    lines = f"\n{text}"
    if any(key in lines for key in _OURS):
        return False
    if "\n---" in text and any(key in lines for key in _THEIRS):
        return True
    return any(_is_definition(part) for part in _SEPARATOR.split(text))


def _is_definition(part: str) -> bool:
    """Whether a document is `name: …` next to other keys of a file, or `file:` with `name: …` below it."""
    first = _FIRST_LINE.search(part)
    if first is None or _KEY.match(part, first.start()) is None:
        return False
    top, below, indent = set[str](), set[str](), -1
    for found in _KEY.finditer(part, first.start()):
        indent = len(found[1]) if indent < 0 else indent
        (top if len(found[1]) == indent else below).add(found[3])
    return ("name" in top and bool(top & _OF_A_FILE)) or (top in _OWN_TYPE and "name" in below)
