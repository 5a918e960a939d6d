"""What a revision of a data document changed: each value, and no secret."""

from __future__ import annotations

import pytest

from ccm_agent.model.errors import DocumentError
from ccm_ctl.fleet.data.document_changes import VALUE_CHARACTERS, DocumentChange, find_changes

OLD = """\
hierarchy: {order: ["role:web"], secret: ["tls.*"]}
data: {port: 80, gone: [1, 2], db: {password: planted-one, host: db1}, tls: {key: planted-two}, same: {a: 1}}
overrides: {"role:web": {workers: 4, token: planted-three}}
"""
NEW = """\
hierarchy: {order: ["role:web", "all"], secret: []}
data: {port: 8080, db: {password: planted-four, host: db1}, tls: {key: planted-five}, same: {a: 1}, motto: "now planted-one!"}
overrides: {"role:web": {workers: "4", token: planted-three}}
"""


def test_each_value_that_differs_is_named_and_secrets_are_masked() -> None:
    assert find_changes(OLD, NEW, is_protected=False) == [
        DocumentChange(
            path="hierarchy.order", kind="changed", before=["role:web"], after=["role:web", "all"]
        ),
        DocumentChange(path="hierarchy.secret", kind="changed", before=["tls.*"], after=[]),
        DocumentChange(path="data.port", kind="changed", before=80, after=8080),
        DocumentChange(path="data.gone", kind="removed", before=[1, 2]),
        DocumentChange(path="data.db.password", kind="changed", before="***", after="***"),
        DocumentChange(path="data.tls.key", kind="changed", before="***", after="***"),
        DocumentChange(path="overrides.role:web.workers", kind="changed", before=4, after="4"),
        DocumentChange(path="data.motto", kind="added", after="now ***!"),
    ]


def test_no_value_of_a_protected_document_is_shown() -> None:
    found = find_changes("data: {a: one, b: 2}", "data: {a: two, c: 3}", is_protected=True)

    assert [(one.path, one.before, one.after) for one in found] == [
        ("data.a", "***", "***"),
        ("data.b", "***", None),
        ("data.c", None, "***"),
    ]


def test_a_secret_that_is_a_key_is_masked() -> None:
    old, new = "data: {password: planted}", "data: {password: planted, planted: 1}"

    (found,) = find_changes(old, new, is_protected=False)

    assert "planted" not in repr(found)


@pytest.mark.parametrize(
    ("before", "after", "paths"),
    [
        pytest.param(None, "data: {a: 1}", ["data.a"], id="the first revision"),
        pytest.param("data: {a: 1}", None, ["data.a"], id="a removal"),
        pytest.param(
            "data: {a: {}}", "data: {a: {b: 1}}", ["data.a", "data.a.b"], id="a mapping that was empty"
        ),
        pytest.param("data: {a: 1}", "data: {a: 1}  # why\n", [], id="a comment"),
        pytest.param("[1]", "[2]", [""], id="no mapping"),
    ],
)
def test_unusual_documents_are_compared(before: str | None, after: str | None, paths: list[str]) -> None:
    assert [one.path for one in find_changes(before, after, is_protected=False)] == paths


def test_a_long_value_is_cut() -> None:
    (found,) = find_changes("", f"data: {{a: {'x' * 5000}}}", is_protected=False)

    assert found.after == "x" * VALUE_CHARACTERS + " …"


def test_a_text_that_is_not_yaml_is_an_error() -> None:
    with pytest.raises(DocumentError):
        find_changes("data: [", "data: {}", is_protected=False)
