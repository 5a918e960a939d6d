"""From a document and facts to data; the language itself is proven in tests/conformance."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm_agent.facts.gather import LazyFacts
from ccm_agent.hiera.resolve import resolve_document, resolve_values
from ccm_agent.hiera.rules import check
from ccm_agent.model.data import DataRule
from ccm_agent.model.errors import DataError, DocumentError, ExpressionError

FACTS = {"env": "prod", "role": "web", "n": 3, "list": ["a", "b"]}


def data_of(document: str, facts: dict[str, Any] | None = None) -> dict[str, Any]:
    return resolve_document(document, FACTS if facts is None else facts, "s.yaml").data


def test_the_first_override_that_exists_replaces_whole_keys() -> None:
    document = """
        hierarchy:
          order: ["none", "env:${ lookup('facts.env') }", common]
        data: {level: info, web: {port: 80, tls: false}, list: [1]}
        overrides:
          common: {level: debug}
          env:prod: {web: {port: 443}, list: [2]}
    """

    assert data_of(document) == {"level": "info", "web": {"port": 443}, "list": [2]}


def test_deep_merges_all_that_exist_in_order() -> None:
    document = """
        hierarchy:
          order: ["env:{{ lookup('facts.env') }}", "role:{{ Facts.role }}"]
          merge: deep
        data: {level: info, web: {port: 80, tls: false}, list: [1]}
        overrides:
          role:web: {level: warn, list: [3]}
          env:prod: {web: {port: 443}, list: [2], level: ~}
    """

    assert data_of(document) == {"level": "warn", "web": {"port": 443, "tls": False}, "list": [1, 2, 3]}


@pytest.mark.parametrize(
    ("document", "data"),
    [
        pytest.param(
            "data: {a: 1}\noverrides: {default: {a: 2}}\n", {"a": 2}, id="without hierarchy default counts"
        ),
        pytest.param("other: 1\n", {}, id="without data"),
        pytest.param(
            '{"data": {"a": 1.0, "b": 2.5}}', {"a": 1, "b": 2.5}, id="whole floats become whole numbers"
        ),
        pytest.param(
            "data: {v: 9223372036854775808.0}\n", {"v": 2.0**63}, id="unless they are too large for one"
        ),
        pytest.param("data: {v: '${ 4 / 2 }'}\n", {"v": 2.0}, id="what an expression gives stays as it is"),
        pytest.param("data: {v: '${ Facts.list }'}\n", {"v": ["a", "b"]}, id="one expression keeps its type"),
        pytest.param("data: {v: ['n=${ Facts.n }']}\n", {"v": ["n=3"]}, id="text around it makes text"),
        pytest.param("data: {'${ Facts.n }': 1}\n", {"${ Facts.n }": 1}, id="keys are not rendered"),
        pytest.param(
            "hierarchy: {order: ['env:${ Facts.nope }']}\ndata: {a: 1}\noverrides: {'env:': {a: 2}}\n",
            {"a": 1},
            id="an entry whose expressions give nothing is left out",
        ),
        pytest.param(
            "hierarchy: {order: [data]}\ndata: {a: 1}\noverrides: {data: {a: 2}}\n",
            {"a": 1},
            id="data does not override itself",
        ),
        pytest.param(
            "hierarchy: {order: [x, y]}\ndata: {a: 1}\noverrides: {x: 5, y: {a: 2}}\n",
            {"a": 2},
            id="an override that is not a mapping is none",
        ),
    ],
)
def test_a_document_resolves(document: str, data: dict[str, Any]) -> None:
    resolved = data_of(document)

    assert resolved == data
    assert [type(value) for value in resolved.values()] == [type(value) for value in data.values()]


@pytest.mark.parametrize(
    ("document", "said"),
    [
        pytest.param(
            "",
            "s.yaml: expected a mapping with `data` and optionally `hierarchy` and `overrides`, not nothing",
            id="empty",
        ),
        pytest.param(
            "data: {}\nhierarchy:\n",
            "s.yaml:2:1: `hierarchy` must be a mapping with `order`, not nothing",
            id="hierarchy without content",
        ),
        pytest.param(
            "hierarchy:\n  merge: deep\n",
            "s.yaml:1:1: `hierarchy.order` is missing; list the names of overrides, one per line",
            id="no order",
        ),
        pytest.param(
            "hierarchy:\n  order: default\n",
            "s.yaml:2:3: `hierarchy.order` must be a list, not text; "
            "list the names of overrides, one per line",
            id="an order that is not a list",
        ),
        pytest.param(
            "hierarchy:\n  order:\n    - a\n    - 5\n",
            "s.yaml:4:7: the entries of `hierarchy.order` must be text, not a number; put it in quotes",
            id="an entry that is not text",
        ),
        pytest.param(
            "hierarchy: {order: [x], merge: deeep}\ndata: {a: 1}\noverrides: {x: {a: 2}}\n",
            "s.yaml:1:25: unknown merge `deeep`: write `first` or `deep`",
            id="unknown merge",
        ),
        pytest.param(
            "data: {}\noverrides:\n",
            "s.yaml:2:1: `overrides` must be a mapping, not nothing; remove the key or add entries",
            id="overrides without content",
        ),
    ],
)
def test_an_invalid_value_is_reported_with_its_place(document: str, said: str) -> None:
    with pytest.raises(DataError) as caught:
        data_of(document)

    assert str(caught.value) == said


@pytest.mark.parametrize(
    ("document", "place"),
    [
        ("data:\n  a:\n    - x\n    - '{{ nope }}'\n", "s.yaml:4:7"),
        ("hierarchy:\n  order:\n    - '{{ nope }}'\n", "s.yaml:3:7"),
        (
            "hierarchy: {order: [x]}\noverrides:\n  x:\n    k: '{{ readFile(1) }}'\n",
            "s.yaml:4:5",
        ),
    ],
)
def test_an_expression_that_fails_is_placed(document: str, place: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        data_of(document)

    assert str(caught.value.place) == place


def test_broken_document_has_a_specific_error() -> None:
    with pytest.raises(DocumentError, match=r"s\.yaml:1:7"):
        data_of("data: [1\n")


def test_values_that_were_decoded_before_resolve_without_their_text() -> None:
    root = {"data": {"a": "${ Facts.n }"}, "hierarchy": {"order": ["x"]}, "overrides": {"x": {"b": [1]}}}

    resolved = resolve_values(root, FACTS)

    assert resolved.data == {"a": 3, "b": [1]}
    assert resolved.data["b"] is not root["overrides"]["x"]["b"]  # type: ignore[index]
    with pytest.raises(DataError, match=r"^\$\.hierarchy: "):
        resolve_values({"hierarchy": 1}, {})


def test_the_rules_of_the_document_come_with_its_data() -> None:
    resolved = resolve_document("data:\n  # @require\n  a: ''\n", {}, "s.yaml")

    assert resolved.rules == (DataRule(path=("a",), required=True, source="s.yaml", line=2),)


_DATA = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(alphabet="ab ${}'", max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=3),
    max_leaves=8,
)


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(("data", "hierarchy", "overrides"), _DATA)))
def test_no_document_leaves_the_error_tree(root: dict[str, Any]) -> None:
    try:
        resolved = resolve_values(root, {"a": 1})
    except (DataError, ExpressionError):
        return

    assert isinstance(resolved.data, dict)


def test_only_the_facts_that_a_document_looks_at_are_gathered() -> None:
    gathered: list[str] = []

    def family(name: str) -> Callable[[], dict[str, Any]]:
        return lambda: gathered.append(name) or {"info": {"name": name}}  # type: ignore[func-returns-value]

    facts = LazyFacts([{"role": "web"}], {name: family(name) for name in ("host", "cpu", "memory")})
    document = """
        hierarchy: {order: ["role:${ lookup('facts.role') }"]}
        data: {a: "${ Facts.host.info.name }", b: "${ lookup('facts.host.info.name') }", c: "${ Facts.role }"}
        overrides: {"role:web": {d: "${ Facts.cpu?.info.name + '!' }"}}
    """

    assert data_of(document, facts) == {"a": "host", "b": "host", "c": "web", "d": "cpu!"}
    assert gathered == ["host", "cpu"]


def test_the_documented_example_gives_the_documented_data() -> None:
    page = (Path(__file__).parents[3] / "docs/concepts/hiera.md").read_text()
    document = page.split("```yaml\n")[1].split("```")[0]

    resolved = resolve_document(document, {"env": "prod", "role": "web"})
    check(resolved.data, resolved.rules)

    assert resolved.data == {
        "log_level": "WARN",
        "port": 443,
        "packages": ["ca-certificates", "nginx"],
        "listen": "10.0.0.1",
    }
    assert len(resolved.rules) == 1
