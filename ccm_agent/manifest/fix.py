"""
The changes of `ccm lint --fix`: it quotes numbers in fields that accept text. The rest of the document is
unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ccm_agent.manifest.document import parse_path
from ccm_agent.manifest.findings import Finding
from ccm_agent.model import codec

_NUMBER = re.compile(r"[+-]?[0-9][0-9a-fA-FoOxX_.+:-]*")
_MODE = re.compile(r"(?:0o?)?([0-7]{3})")


def fix(text: str, findings: Iterable[Finding]) -> str:
    """
    Fix the findings in a document where the fix is certain. Blocking.

    Args:
        text: The document. JSON is not changed.
        findings: The findings in the document.
    """
    if codec.is_json(text):
        return text
    from ccm_agent.model.formats.yaml_marks import scalar_span

    spans = {
        span: parse_path(one.place.path)[-1]
        for one in findings
        if one.can_fix and (span := scalar_span(text, parse_path(one.place.path))) is not None
    }
    for (begin, end), key in sorted(spans.items(), reverse=True):
        if _NUMBER.fullmatch(text[begin:end]):
            text = f"{text[:begin]}{_quoted(str(key), text[begin:end])}{text[end:]}"
    return text


def _quoted(key: str, written: str) -> str:
    mode = _MODE.fullmatch(written) if key == "mode" else None
    return f'"0{mode[1]}"' if mode else f'"{written}"'
