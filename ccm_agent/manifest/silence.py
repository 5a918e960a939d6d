"""
Comments that silence rules of `ccm lint`.

    mode: 0644   # ccm-lint: ignore[unquoted]           findings of this line
    # ccm-lint: ignore[unknown-property, value]         findings of the next line that is not a comment
    # ccm-lint: ignore-file[strict-ccm]                 findings of the whole file
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from ccm_agent.manifest.findings import WARNING, Finding
from ccm_agent.manifest.rules import ALWAYS, RULES
from ccm_agent.model.errors import Place
from ccm_agent.model.suggestions import did_you_mean

if TYPE_CHECKING:
    from ccm_agent.manifest.document import ManifestDocument

_COMMENT = re.compile(r"(?:^|\s)#\s*ccm-lint:\s*(?P<scope>ignore-file|ignore)\[(?P<rules>[^\][#]*+)\]")
_WHOLE_FILE = 0
"""The key for rules that are silenced in the whole file."""


def without_silenced(
    findings: Sequence[Finding], document: ManifestDocument, ignored: Collection[str] = ()
) -> list[Finding]:
    """
    Return the findings that are not silenced, and a finding for each unknown code in a comment.

    Args:
        findings: All findings.
        document: The document.
        ignored: Codes that are silenced everywhere.
    """
    silenced: dict[int, set[str]] = {_WHOLE_FILE: {*ignored}}
    unknown = []
    for line, target, codes in _comments(document.text):
        silenced.setdefault(target, set()).update(codes)
        unknown += [_unknown(code, Place(document.name, line)) for code in codes if code not in RULES]
    kept = [
        one
        for one in findings
        if one.rule in ALWAYS or one.rule not in silenced[_WHOLE_FILE] | silenced.get(one.place.line, set())
    ]
    return kept + [one for one in unknown if "silence" not in silenced[_WHOLE_FILE]]


def _comments(text: str) -> Iterator[tuple[int, int, list[str]]]:
    """Yield the line of each comment, the line to which it applies (0: the whole file), and its codes."""
    if "ccm-lint:" not in text:
        return
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        found = _COMMENT.search(line)
        if found is None:
            continue
        codes = [code.strip() for code in found["rules"].split(",") if code.strip()]
        if found["scope"] == "ignore-file":
            yield number, _WHOLE_FILE, codes
        elif line.lstrip().startswith("#"):
            below = (n for n, one in enumerate(lines[number:], number + 1) if _is_content(one))
            yield number, next(below, number), codes
        else:
            yield number, number, codes


def _is_content(line: str) -> bool:
    return line.strip() != "" and not line.lstrip().startswith("#")


def _unknown(code: str, place: Place) -> Finding:
    message = f"there is no rule `{code}`{did_you_mean(code, RULES)}"
    return Finding(level=WARNING, rule="silence", message=message, place=place)
