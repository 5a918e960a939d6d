"""Which layer of which document gives a value."""

from __future__ import annotations

from typing import Any

import pytest

from ccm_agent.hiera.explain import Candidate, Explained, LayerEffect, SourceDocument, explain
from ccm_agent.hiera.resolve import resolve_document
from ccm_agent.model import merge
from ccm_agent.model.errors import DocumentError

COMMON = """\
hierarchy:
  order:
    - node:${ lookup('facts.node') }
    - env:${ lookup('facts.env') }
    - role:${ lookup('facts.role') }
  merge: deep
data:
  # @validate isInt(value)
  port: 80
  tls:
    cipher: modern
  packages: [ca-certificates]
overrides:
  env:prod:
    port: 443
    tls:
      cert: /etc/cert
  role:web:
    packages: [nginx]
"""
FIRST = COMMON.replace("  merge: deep\n", "")
NODE = "data:\n  port: http\n"
FACTS = {"env": "prod", "role": "web"}


def told(one: Explained) -> list[tuple[str, str, str, int, Any]]:
    return [
        (each.document, each.layer or each.entry, str(each.effect), each.line, each.value)
        for each in one.candidates
    ]


def test_every_layer_is_named_in_the_order_of_merging() -> None:
    found = explain("port", [SourceDocument(name="common", text=COMMON, revision=7)], FACTS)

    assert (found.is_found, found.value) == (True, 443)
    assert told(found) == [
        ("common", "data", "overridden", 9, 80),
        ("common", "node:${ lookup('facts.node') }", "names no override", 0, None),
        ("common", "env:prod", "wins", 15, 443),
        ("common", "role:web", "has no such key", 18, None),
    ]
    assert found.candidates[2] == Candidate(
        document="common", revision=7, merge="deep", entry="env:${ lookup('facts.env') }", layer="env:prod", line=15,
        effect=LayerEffect.WINS, value=443,
    )  # fmt: skip


def test_lists_and_mappings_that_are_merged_have_several_givers() -> None:
    packages = explain("packages", [SourceDocument(name="common", text=COMMON)], FACTS)
    tls = explain("tls", [SourceDocument(name="common", text=COMMON)], FACTS)

    assert packages.value == ["ca-certificates", "nginx"]
    assert [each.effect for each in packages.candidates if each.value] == [
        LayerEffect.MERGED,
        LayerEffect.MERGED,
    ]
    assert tls.value == {"cipher": "modern", "cert": "/etc/cert"}
    assert [each.effect for each in tls.candidates if each.value] == [LayerEffect.MERGED, LayerEffect.MERGED]


def test_with_merge_first_the_first_override_counts_and_replaces_whole_keys() -> None:
    found = explain("tls.cipher", [SourceDocument(name="common", text=FIRST)], FACTS)

    assert (found.is_found, found.value) == (False, None)
    assert told(found) == [
        ("common", "data", "overridden", 10, "modern"),
        ("common", "node:${ lookup('facts.node') }", "names no override", 0, None),
        ("common", "env:prod", "removes", 13, None),
        ("common", "role:${ lookup('facts.role') }", "not reached", 0, None),
    ]


def test_a_later_document_overrides_an_earlier_one_and_rules_apply_to_the_result() -> None:
    found = explain(
        "port", [SourceDocument(name="common", text=COMMON), SourceDocument(name="node", text=NODE)], FACTS
    )

    assert found.value == "http"
    assert told(found)[-1] == ("node", "data", "wins", 2, "http")
    assert told(found)[2][2] == "overridden"
    assert found.broken == ("common:8: the value of `port` does not satisfy `isInt(value)`",)


def test_a_removed_override_restores_the_earlier_documents_value() -> None:
    below = SourceDocument(name="a", text="data:\n  tls: {cipher: old}\n")

    found = explain("tls.cipher", [below, SourceDocument(name="b", text=FIRST)], FACTS)

    assert found.value == "old"
    assert [(one.document, str(one.effect)) for one in found.candidates] == [
        ("a", "wins"), ("b", "overridden"), ("b", "names no override"), ("b", "removes"), ("b", "not reached"),
    ]  # fmt: skip


def test_a_document_that_replaces_the_parent_of_a_key_removes_the_key() -> None:
    sources = [
        SourceDocument(name="a", text="data:\n  tls: {cipher: old}\n"),
        SourceDocument(name="b", text="data:\n  tls: none\n"),
    ]

    found = explain("tls.cipher", sources, {})

    assert (found.is_found, [str(one.effect) for one in found.candidates]) == (
        False,
        ["overridden", "removes"],
    )


def test_a_key_with_dots_is_found_and_an_unknown_one_is_not() -> None:
    text = "data:\n  a.b:\n    c.d: 1\n"

    assert explain("a.b.c.d", [SourceDocument(name="x", text=text)], {}).key == ("a.b", "c.d")
    assert explain("a.b.c", [SourceDocument(name="x", text=text)], {}).is_found is False


@pytest.mark.parametrize("text", [COMMON, FIRST])
@pytest.mark.parametrize("facts", [{}, {"env": "prod"}, {"role": "web"}, FACTS, FACTS | {"node": "x"}])
@pytest.mark.parametrize("key", ["port", "tls", "packages"])
def test_the_explained_value_is_the_nodes_value(text: str, facts: dict[str, Any], key: str) -> None:
    data = merge.deep(resolve_document(text, facts).data, resolve_document(NODE, facts).data)

    found = explain(key, [SourceDocument(name="a", text=text), SourceDocument(name="b", text=NODE)], facts)

    assert found.value == data.get(key)


def test_a_broken_document_is_an_error_with_its_line() -> None:
    with pytest.raises(DocumentError, match="x:2"):
        explain("a", [SourceDocument(name="x", text="data:\n  a: [1\n")], {})
