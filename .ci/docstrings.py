"""Extract from docstrings: the first sentence, and the fields of a class."""

from __future__ import annotations

import inspect
import re

_SENTENCE = re.compile(r"(?<=[.!?])\s")
_FIELD = re.compile(r"(?P<names>[a-z_]+(?:, [a-z_]+)*): (?P<text>.*)")


def first_sentence(thing: object) -> str:
    """Return the first sentence of a docstring."""
    return _SENTENCE.split(" ".join((inspect.getdoc(thing) or "").partition("\n\n")[0].split()))[0]


def attributes(kind: type) -> dict[str, str]:
    """Return the text of each field in `Attributes:` of a class and its bases. Fields on the same line get the same text."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        # not inspect.getdoc, which returns a base's docstring for a class without one
        block = inspect.cleandoc(base.__dict__.get("__doc__") or "").partition("Attributes:\n")[2]
        names: list[str] = []
        for line in block.partition("\n\n")[0].splitlines():
            if line.startswith(" " * 4) and (field := _FIELD.fullmatch(line[4:])):
                names = field["names"].split(", ")
                found |= dict.fromkeys(names, field["text"].strip())
            elif names:
                found |= {name: f"{found[name]} {line.strip()}" for name in names}
    return found
