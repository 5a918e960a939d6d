"""Tells TinyCM's manifests from ours; every `ccm apply` asks, so it takes no time."""

from __future__ import annotations

_ENDINGS = (".cm.yml", ".cm.yaml")
_OURS = ("\nccm:", '\n"ccm"', "\n'ccm'")
_THEIRS = ("\nglobal:", "\nhost:", "\nhosts:")


def is_tinycm(name: str, text: str) -> bool:
    """Whether a manifest is TinyCM's: it is called `*.cm.yml`, or begins as those do and has no `ccm` section."""
    if name.endswith(_ENDINGS):
        return True
    if "\n---" not in text:
        return False
    lines = f"\n{text}"
    return any(key in lines for key in _THEIRS) and not any(key in lines for key in _OURS)
