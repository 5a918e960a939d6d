"""`ccmctl data explain`: which layer of which document gives a value, on one node."""

from __future__ import annotations

from pathlib import Path

import pytest

from ccm_ctl.commands.data.hiera import masked
from tests.support.controller import Desk, FakeNode
from tests.unit.ccm_ctl.commands.test_checks import assigned, layered


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """web1 in production, and a document with layers."""
    made = Desk(FakeNode("web1", {"role": "web", "env": "prod"}))
    path = tmp_path / "common.yaml"
    path.write_text(layered())
    assert made.ccmctl("data", "put", "common", str(path)).code == 0
    return made


def test_the_layer_that_wins_comes_first_and_then_all_the_others(desk: Desk) -> None:
    done = desk.ccmctl("data", "explain", "port", "--node", "web1")

    assert (done.code, done.err, done.out) == (
        0,
        "",
        "port of web1 is 443, from env:prod of kv://CCM_DATA/common:18.\n"
        "\n"
        "kv://CCM_DATA/common revision 1 (merge: deep; lower layers override those above)\n"
        "LAYER                           LINE  RESULT             VALUE\n"
        "data                               9  overridden         80\n"
        "env:prod                          18  wins               443\n"
        "role:web                          13  has no such key\n"
        "node:${ lookup('facts.name') }        names no override\n",
    )


def test_programs_get_each_layer(desk: Desk) -> None:
    [record] = desk.ccmctl("data", "explain", "owner", "-n", "web1", "--json").records

    assert {key: record[key] for key in ("record", "key", "node", "found", "value")} == {
        "record": "explained", "key": "owner", "node": "web1", "found": True, "value": "web-team",
    }  # fmt: skip
    assert [(one["layer"], one["effect"], one.get("value")) for one in record["layers"]] == [
        ("data", "overridden", ""),
        ("env:prod", "has no such key", None),
        ("role:web", "wins", "web-team"),
        ("", "names no override", None),
    ]
    assert record["rules"][0]["required"] is True


def test_a_local_file_replaces_the_stored_document_in_the_explanation(desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "new.yaml"
    path.write_text("data:\n  port: http\n")

    done = desk.ccmctl(
        "data", "explain", "port", "-n", "web1", "--data", "kv://CCM_DATA/common", "--data", str(path)
    )

    lines = done.out.replace(str(path), "FILE").splitlines()
    assert lines[:2] == [
        'port of web1 is "http", from data of FILE:2.',
        "kv://CCM_DATA/common:8: the value of `port` does not satisfy `isInt(value)`",
    ]
    assert lines[-3:] == [
        "FILE (no hierarchy)",
        "LAYER  LINE  RESULT  VALUE",
        'data      2  wins    "http"',
    ]


def test_a_key_that_no_layer_has_is_reported_with_exit_code_1(desk: Desk) -> None:
    done = desk.ccmctl("data", "explain", "prot", "-n", "web1")

    assert (done.code, done.out.splitlines()[0]) == (
        1,
        "prot is not set for web1: no matching layer defines it.",
    )


def test_other_documents_that_an_assignment_reads_are_named(desk: Desk) -> None:
    desk.hooks.append(assigned)

    done = desk.ccmctl("data", "explain", "port", "-n", "web1")

    assert done.err == (
        "the assignment base reads other documents on this node: --data kv://CCM_DATA/common --data kv://CCM_DATA/role/web\n"
    )


def test_secrets_are_masked_unless_they_are_asked_for(desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "secret.yaml"
    path.write_text("data:\n  db: {password: hunter2, url: 'https://me:hunter2@db/x'}\n")
    command = ["data", "explain", "db", "-n", "web1", "--data", str(path)]

    said = [desk.ccmctl(*command), desk.ccmctl(*command, "--json")]
    shown = desk.ccmctl(*command, "--show-secrets")

    assert [(one.code, "***" in one.out, "hunter2" in one.out + one.err) for one in said] == [
        (0, True, False)
    ] * 2
    assert "hunter2" in shown.out


def test_a_key_that_a_document_declares_secret_is_masked_in_every_document(
    desk: Desk, tmp_path: Path
) -> None:
    one, other = tmp_path / "one.yaml", tmp_path / "other.yaml"
    one.write_text("hierarchy: {secret: ['app.*.pin']}\ndata: {app: {x: {pin: first-pin, port: 80}}}\n")
    other.write_text("data: {app: {x: {pin: second-pin}}}\n")
    command = ["data", "explain", "app", "-n", "web1", "--data", str(one), "--data", str(other)]

    said = [desk.ccmctl(*command), desk.ccmctl(*command, "--json")]

    assert [(one.code, "-pin" in one.out + one.err, "80" in one.out) for one in said] == [
        (0, False, True)
    ] * 2


@pytest.mark.parametrize(
    ("key", "is_masked"),
    [("db.password", True), ("apiKey", True), ("tls.private_key", True), ("tokens", True), ("passenger", False), ("key", False)],
)  # fmt: skip
def test_secrets_are_recognized_by_the_name_of_the_key(key: str, is_masked: bool) -> None:
    assert (masked(key, "x") == "***") is is_masked


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["port", "-n", "wbe1"], "ccmctl: wbe1: there is no such node, did you mean web1?\n"),
        (["port", "-n", "web1", "--data", "kv://CCM_DATA/nope"],
         "ccmctl: kv://CCM_DATA/nope: there is no such document; see `ccmctl data list`\n"),
        (["port", "-n", "web1", "--data", "https://x/y"],
         "ccmctl: https://x/y: cannot be read from here; use kv://CCM_DATA/KEY or a file\n"),
        (["a..b", "-n", "web1"], "ccmctl: 'a..b': not a valid key; use a path such as port or tls.cert\n"),
    ],
)  # fmt: skip
def test_a_key_that_cannot_be_explained_is_an_error(desk: Desk, arguments: list[str], error: str) -> None:
    done = desk.ccmctl("data", "explain", *arguments)

    assert (done.code, done.err) == (1, error)
