"""Suggestions for misspelled words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that is most similar to `word`, ignoring case; None if none is similar."""
    import difflib

    folded = {one.lower(): one for one in known}
    found = difflib.get_close_matches(word.lower(), folded, n=1, cutoff=0.6)
    return folded[found[0]] if found else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """
    Return the end of an error message about an unknown word: `, did you mean X?`; "" if no known word is
    similar.
    """
    near = nearest(word, known)
    return f", did you mean `{near}`?" if near else ""


def either(words: Sequence[str]) -> str:
    """Format a list of choices: "`off`, `plan` or `apply`"."""
    *most, last = [f"`{word}`" for word in words]
    return f"{', '.join(most)} or {last}" if most else last
