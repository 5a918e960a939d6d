from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm_agent.model import merge

_VALUES = st.recursive(
    st.none() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=10,
)
_DATA = st.dictionaries(st.text(max_size=2), _VALUES, max_size=4)


@pytest.mark.parametrize(
    ("base", "layer", "result"),
    [
        pytest.param({"a": 1}, {"b": 2}, {"a": 1, "b": 2}, id="keys of both"),
        pytest.param({"m": {"a": 1}}, {"m": {"b": 2}}, {"m": {"a": 1, "b": 2}}, id="mappings are merged"),
        pytest.param({"l": [1]}, {"l": [1, 2]}, {"l": [1, 1, 2]}, id="lists are joined"),
        pytest.param({"a": {"b": 1}}, {"a": None}, {"a": None}, id="null replaces"),
        pytest.param({"a": [1]}, {"a": {"b": 1}}, {"a": {"b": 1}}, id="another kind replaces"),
    ],
)
def test_deep_merge(base: dict[str, Any], layer: dict[str, Any], result: dict[str, Any]) -> None:
    assert merge.deep(base, layer) == result


def test_a_shallow_merge_replaces_whole_keys() -> None:
    assert merge.shallow({"m": {"a": 1}, "k": 1}, {"m": {"b": 2}}) == {"m": {"b": 2}, "k": 1}


@given(_DATA, _DATA)
def test_merging_changes_neither_side_and_shares_nothing(base: dict[str, Any], layer: dict[str, Any]) -> None:
    before = merge.copy(base), merge.copy(layer)

    for merged in (merge.deep(base, layer), merge.shallow(base, layer)):
        _spoil(merged)

    assert (base, layer) == before


@given(_DATA)
def test_an_empty_layer_changes_nothing(data: dict[str, Any]) -> None:
    assert merge.deep(data, {}) == merge.deep({}, data) == merge.shallow(data, {}) == data


def _spoil(value: Any) -> None:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for one in list(inner):
        _spoil(one)
    if isinstance(value, dict):
        value["spoilt"] = True
    elif isinstance(value, list):
        value.append("spoilt")
