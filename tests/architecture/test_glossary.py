"""
Every noun that a public class is named after is explained: in docs/contributing/glossary.md, or as a general term below.

The noun is the last word of the name: `ChainPosition` is a position. A new class needs an entry in the glossary if its noun
belongs to the domain of this project. A plain noun that every programmer knows goes into `GENERAL` instead.
"""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]

EXEMPT = (
    # The template languages have syntax trees, tokens and values that are named as in the languages themselves.
    "ccm_agent/templates/engines/*",
    "ccm_agent/templates/expr/*",
    "ccm_agent/templates/g*.py",
    # A provider is named after its tool.
    "ccm_agent/resources/*/providers/*",
)

_GENERAL = """
access ack action address alias allowance amount app application argument block builder bus cache call callback
candidate cell change channel client clock column command comment commit comparison config connection content count counter
crontab cursor data definition dep deps difference directory document download driver duration edit editor effect end environment
error exec execution executor exit export expression failure feed field file filter flag follower format formatter frame function
group guest handler head header info inside job kernel key kind launch limit limiter line link lock log map match matcher
message metadata mistake name network object observer option output overview page parser part pattern phase place
placement platform point port prefetcher probe process program property query question queue range reader reason ref
reference regex registry renderer reply response result root rotation sender verifier row runner server service set setting size
socket span spec start store style tail tar term terminal text thread time timer tool transfer tree unpacker url user
value verb view watch watcher window word worker write writer
"""
GENERAL = frozenset(_GENERAL.split())
"""Nouns that mean here what they mean in every program."""

_ADJECTIVES = """
acked ahead at authored broken complete completed deferred done driving dropped evaluated explained failed found holding
joining left listed lost moving next of packed past piped plain planned published quoted read received recorded
resolved resumed seen sensitive sent several since spooled stamped started stored transferred unpack unpacked
untemplated unverified verified where
"""
ADJECTIVES = frozenset(_ADJECTIVES.split())
"""Names without a noun, which say what happened to something. No new ones, please: `StoredDocument` says more than `Stored`."""


def glossary_nouns() -> set[str]:
    terms = re.findall(
        r"^\| \*\*(.+?)\*\*", (TOP / "docs/contributing/glossary.md").read_text(), re.MULTILINE
    )
    return {term.lower().split()[-1] for term in terms}


@functools.cache
def public_classes() -> list[tuple[str, str]]:
    """Pairs of module and class name."""
    found = []
    for package in ("ccm_agent", "ccm_ctl"):
        for path in sorted((TOP / package).rglob("*.py")):
            module = path.relative_to(TOP)
            if any(module.match(pattern) or module.parent.match(pattern) for pattern in EXEMPT):
                continue
            for one in ast.parse(path.read_text()).body:
                if isinstance(one, ast.ClassDef) and not one.name.startswith("_"):
                    found.append((str(module), one.name))
    return found


def last_word(name: str) -> str:
    return re.findall(r"[A-Z]+(?![a-z])[0-9]*|[A-Z][a-z0-9]*", name)[-1].lower()


def singulars(word: str) -> set[str]:
    """The word itself, and what it may be the plural of."""
    found = {word, word.removesuffix("s"), word.removesuffix("es")}
    if word.endswith("ies"):
        found.add(word.removesuffix("ies") + "y")
    return found


def is_explained(name: str, nouns: set[str]) -> bool:
    return bool(singulars(last_word(name)) & (nouns | GENERAL | ADJECTIVES))


def test_the_noun_of_each_public_class_is_explained() -> None:
    nouns = glossary_nouns()

    unknown = [f"{module}: {name}" for module, name in public_classes() if not is_explained(name, nouns)]

    assert unknown == [], "explain the noun in docs/contributing/glossary.md, or add a general one to GENERAL"


def test_a_class_with_an_unknown_noun_is_found() -> None:
    assert not is_explained("AssignmentFrobnicator", glossary_nouns())


@pytest.mark.parametrize(
    "name", ["HiddenManifest", "PendingRefreshes", "ListedRuns", "NatsServer", "JSONError", "Ed25519Key"]
)
def test_a_known_noun_is_found_in_singular_and_plural(name: str) -> None:
    assert is_explained(name, glossary_nouns())


def test_the_list_of_names_without_a_noun_only_shrinks() -> None:
    used = set().union(*(singulars(last_word(name)) for _, name in public_classes()))

    assert sorted(ADJECTIVES - used) == []


def test_the_glossary_is_sorted() -> None:
    terms = re.findall(
        r"^\| \*\*(.+?)\*\*", (TOP / "docs/contributing/glossary.md").read_text(), re.MULTILINE
    )

    assert terms == sorted(terms, key=str.lower)
