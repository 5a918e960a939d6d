"""Which properties of an edit are refused, all errors at once."""

from __future__ import annotations

from typing import Any

import pytest

from ccm_agent.model.errors import PropertyError
from ccm_agent.resources.checks import errors_in
from ccm_agent.resources.edit.model import Edit, EditProperties
from ccm_agent.resources.edit.resource import check


def errors(**properties: Any) -> list[str]:
    """The errors of an edit, as `place: message`."""
    try:
        check(EditProperties(**{"name": "/etc/a", "ensure": "present", **properties}))
    except PropertyError as err:
        return [f"{one.place.path if one.place else ''}: {one.message}" for one in errors_in(err)]
    return []


LINE = {"line": "a"}


@pytest.mark.parametrize(
    ("properties", "error"),
    [
        (
            {**LINE, "name": "etc/a"},
            "$.name: the path of the file must be absolute, but `etc/a` does not begin with a slash; ",
        ),
        ({**LINE, "name": "-rf"}, "$.name: the path of the file must be absolute"),
        (
            {**LINE, "name": "/etc/../a"},
            "$.name: the path of the file must be canonical: write `/a` for `/etc/../a`",
        ),
        ({**LINE, "name": "/etc//a"}, "$.name: the path of the file must be canonical"),
        ({**LINE, "name": "/"}, "$.name: `/` is a directory, not a file"),
        ({**LINE, "name": "/a\nb"}, "$.name: the name contains line breaks or other control characters"),
        ({**LINE, "name": "/a\0b"}, "$.name: the name contains line breaks or other control characters"),
        (
            {**LINE, "name": "a\x1b[2Jb", "path": "/a"},
            "$.name: the name contains line breaks or other control",
        ),
        ({**LINE, "name": "x", "path": "a"}, "$.path: the path of the file must be absolute"),
        ({**LINE, "name": "x", "path": "/a\n"}, "$.path: the path of the file contains line breaks"),
        ({**LINE, "name": "/" + "a" * 256}, "$.name: the path of the file is too long"),
        ({**LINE, "name": "/a" * 3000}, "$.name: the path of the file is too long"),
        ({}, "$.line: nothing to edit: set `line` or `block`"),
        ({"match": "a"}, "$.line: nothing to edit"),
        ({"line": "a", "block": "b"}, "$.block: `line` and `block` are mutually exclusive"),
        ({"line": "a\nb"}, "$.line: `line` contains a line break or a NUL character"),
        ({"line": "a\rb"}, "$.line: `line` contains a line break"),
        ({"line": "a\0"}, "$.line: `line` contains a line break or a NUL character"),
        ({"line": " "}, "$.line: `line` is empty"),
        ({"block": "a\0"}, "$.block: `block` contains a NUL character"),
        ({"block": "a\n# END ccm\n"}, "$.block: the block contains its own `begin` or `end` line"),
        ({"block": "a", "begin": "x", "end": "x"}, "$.end: `begin` and `end` must differ"),
        ({"block": "a", "begin": "x\ny"}, "$.begin: `begin` contains a line break"),
        ({"block": "a", "match": "x"}, "$.match: `match` requires `line`"),
        ({**LINE, "begin": "x"}, "$.begin: `begin` and `end` require `block`"),
        ({**LINE, "multiple": True}, "$.multiple: `multiple` requires `match`"),
        (
            {**LINE, "insert_after": "a", "insert_before": "b"},
            "$.insert_before: `insert_after` and `insert_before` are mutually exclusive",
        ),
        (
            {**LINE, "ensure": "absent", "insert_after": "a"},
            "$.insert_after: `insert_after` and `insert_before` cannot be used with `ensure: absent`",
        ),
        ({**LINE, "match": "("}, "$.match: `match` is not a regular expression"),
        ({**LINE, "match": "(?=a)"}, "$.match: `match` is not a regular expression"),
        ({**LINE, "match": "a" * 5000}, "$.match: `match` is too long"),
        (
            {**LINE, "insert_before": "((a{1,1000}){1,1000})"},
            "$.insert_before: `insert_before` is not a regular expression",
        ),
        ({**LINE, "validate": "sshd -t"}, "$.validate: `validate` must contain `%s`"),
        ({**LINE, "validate": "%s"}, "$.validate: `validate` must begin with a program"),
        ({**LINE, "validate": "'sshd %s"}, "$.validate: `validate` must be shell words"),
        ({**LINE, "validate": "sshd \0 %s"}, "$.validate: `validate` contains a NUL character"),
        ({**LINE, "edits": [Edit(line="b")]}, "$.line: `line` cannot be used with `edits`"),
        (
            {"ensure": "absent", "edits": [Edit(line="b")]},
            "$.ensure: `ensure: absent` cannot be used with `edits`",
        ),
        ({"edits": [Edit(line="b"), Edit(line="\n")]}, "$.edits[1].line: `line` is empty"),
        (
            {"edits": [Edit(line="b", ensure="gone")]},
            "$.edits[0].ensure: `ensure` must be `present` or `absent`, not `gone`",
        ),
        ({"edits": [Edit(block="b"), Edit(block="c")]}, "$.edits[1].begin: two blocks have the same line"),
    ],
)
def test_properties_that_cannot_be_right_are_refused(properties: dict[str, Any], error: str) -> None:
    assert [one[: len(error)] for one in errors(**properties)] == [error]


def test_all_errors_are_reported_at_once() -> None:
    assert len(errors(name="a", validate="x", edits=[Edit(line="a", match="("), Edit()])) == 4


@pytest.mark.parametrize(
    "properties",
    [
        {"line": "a", "match": "^a", "insert_after": "^b"},
        {"line": "a", "insert_before": "BOF"},
        {"line": "a", "insert_after": "EOF"},
        {"ensure": "absent", "match": "^a"},
        {"name": "label", "path": "/etc/a", "block": ""},
        {"edits": [Edit(line="a"), Edit(block="b"), Edit(block="c", begin="x", end="y")]},
        {"line": "a", "validate": "sshd -t -f %s"},
    ],
)
def test_other_properties_are_accepted(properties: dict[str, Any]) -> None:
    assert errors(**properties) == []
