"""Which properties of a config are refused, all errors at once."""

from __future__ import annotations

from typing import Any

import pytest

from ccm_agent.model.errors import PropertyError
from ccm_agent.resources.checks import errors_in
from ccm_agent.resources.config.keys import parse_key
from ccm_agent.resources.config.model import ConfigProperties
from ccm_agent.resources.config.resource import check

DEEP: Any = []
for _ in range(100):
    DEEP = [DEEP]


def errors(**properties: Any) -> list[str]:
    """The errors of a config, as `place: message`."""
    try:
        check(ConfigProperties(**{"name": "/etc/a.yaml", "ensure": "present", **properties}))
    except PropertyError as err:
        return [f"{one.place.path if one.place else ''}: {one.message}" for one in errors_in(err)]
    return []


ONE = {"key": "a", "value": 1}


@pytest.mark.parametrize(
    ("properties", "error"),
    [
        ({**ONE, "name": "a.yaml"}, "$.name: the path of the file must be absolute"),
        ({**ONE, "name": "/etc/../a.yaml"}, "$.name: the path of the file must be canonical"),
        ({**ONE, "name": "/a\n.yaml"}, "$.name: the name contains line breaks or other control characters"),
        ({**ONE, "name": "/etc/a"}, "$.format: the file extension is not one of .cfg, .cnf, "),
        ({**ONE, "format": "xml"}, "$.format: `format` must be one of ini, json, toml, yaml, not `xml`"),
        ({**ONE, "validate": "x"}, "$.validate: `validate` must contain `%s`"),
        ({}, "$.key: set `key` and `value`, or `values`"),
        ({"key": "a"}, "$.value: the key has no `value`; for null, use `values`"),
        ({"value": 1, "values": {"a": 1}}, "$.value: the `value` has no `key`"),
        ({**ONE, "values": {"b": 1}}, "$.values: `key` and `values` are mutually exclusive"),
        ({"key": "a..b", "value": 1}, "$.key: the key `a..b` is not a path of names separated by dots"),
        ({"key": 'a."b', "value": 1}, '$.key: the key `a."b` is not a path'),
        ({"key": "a\nb", "value": 1}, "$.key: a name in the key is empty, or contains control characters"),
        ({"key": ["a", ""], "value": 1}, "$.key: a name in the key is empty"),
        ({"key": ["a"] * 65, "value": 1}, "$.key: a key must have 1 to 64 names"),
        ({"values": {"a": 1, "a.b": 2}}, "$.values: `a` contains another of the keys"),
        ({"values": {"a": 1, '"a"': 2}}, "$.values: a key occurs twice"),
        ({"key": "a", "value": DEEP}, "$.value: the value is nested more than 64 levels deep"),
        ({"values": {"a": DEEP}}, "$.values: the value is nested more than 64 levels deep"),
        ({"key": "a", "value": {1: 2}}, "$.value: the keys of a mapping must be strings"),
    ],
)
def test_properties_that_cannot_be_right_are_refused(properties: dict[str, Any], error: str) -> None:
    assert [one[: len(error)] for one in errors(**properties)] == [error]


def test_all_errors_are_reported_at_once() -> None:
    assert len(errors(name="a", validate="x", key="a.")) == 4


@pytest.mark.parametrize(
    "properties",
    [
        ONE,
        {"values": {"a.b": None, "a.c": [1]}},
        {"key": ["a", "b.c"], "value": False},
        {"ensure": "absent", "key": "a"},
    ],
)
def test_other_properties_are_accepted(properties: dict[str, Any]) -> None:
    assert errors(**properties) == []


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("a", ("a",)),
        ("a.b-c.0", ("a", "b-c", "0")),
        ('a."b.c".d', ("a", "b.c", "d")),
        ("a b.c", ("a b", "c")),
    ],
)
def test_a_key_is_a_path(text: str, path: tuple[str, ...]) -> None:
    assert parse_key(text) == path
