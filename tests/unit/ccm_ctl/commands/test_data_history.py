"""`ccmctl data edit|diff|history|rollback` and `ccmctl facts history`: what was, and going back to it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ccm_agent.model.records.stamped import Stamped
from tests.support.controller import BEFORE, Desk, FakeNode

TEXTS = ["data:\n  a: 1\n", "data:\n  a: 2\n", "data:\n  a: 3\n"]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk()
    for text in TEXTS:
        (tmp_path / "common.yaml").write_text(text)
        desk.ccmctl("data", "put", "common", str(tmp_path / "common.yaml"))
    return desk


def editor(tmp_path: Path, script: str) -> dict[str, str]:
    path = tmp_path / "editor"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return {"EDITOR": str(path)}


def test_revisions_are_listed_with_author_and_time(desk: Desk) -> None:
    assert desk.ccmctl("data", "history", "common").out == (
        "REVISION  SIZE  BY  WHEN\n"
        "       3  13 B  op  2026-11-21 12:00:00Z\n"
        "       2  13 B  op  2026-11-21 12:00:00Z\n"
        "       1  13 B  op  2026-11-21 12:00:00Z\n"
    )
    assert [
        (one["revision"], one["number"]) for one in desk.ccmctl("data", "history", "common", "--json").records
    ] == [(3, BEFORE + 3), (2, BEFORE + 2), (1, BEFORE + 1)]


def test_a_rollback_is_a_new_revision_with_the_old_words(desk: Desk) -> None:
    before = desk.ccmctl("data", "rollback", "common")
    first = desk.ccmctl("data", "rollback", "common", "1")

    assert before.out.endswith("@@ -1,2 +1,2 @@\n data:\n-  a: 3\n+  a: 2\ncommon: revision 4\n")
    assert first.out.endswith("-  a: 2\n+  a: 1\ncommon: revision 5\n")
    stored = msgspec.json.decode(desk.broker.buckets["CCM_DATA"][-1].body, type=Stamped)
    assert (stored.number, stored.count, stored.body) == (BEFORE + 5, 5, TEXTS[0])
    assert desk.ccmctl("data", "rollback", "common", "9").err == (
        "ccmctl: common: revision 9 is not stored; stored revisions: 1, 2, 3, 4, 5\n"
    )


def test_messages_are_shown_with_the_revisions_and_a_rollback_has_one_of_its_own(
    desk: Desk, tmp_path: Path
) -> None:
    (tmp_path / "common.yaml").write_text("data:\n  a: 4\n")
    desk.ccmctl(
        "data", "put", "common", str(tmp_path / "common.yaml"), "-m", "raise the limit\nfor \x1b[31mall"
    )
    desk.ccmctl("data", "rollback", "common", "1")

    shown = desk.ccmctl("data", "history", "common").out
    told = desk.ccmctl("data", "history", "common", "--json").records

    assert shown.splitlines()[:4] == [
        "REVISION  SIZE  BY  WHEN                  MESSAGE",
        "       5  13 B  op  2026-11-21 12:00:00Z  rollback to revision 1",
        "       4  13 B  op  2026-11-21 12:00:00Z  raise the limit for \\x1b[31mall",
        "       3  13 B  op  2026-11-21 12:00:00Z",
    ]
    assert [one.get("message") for one in told[:3]] == [
        "rollback to revision 1",
        "raise the limit\nfor \x1b[31mall",
        None,
    ]


def test_message_that_is_too_long_is_refused(desk: Desk, tmp_path: Path) -> None:
    said = desk.ccmctl("data", "put", "common", str(tmp_path / "common.yaml"), "--message", "x" * 1001)

    assert (said.code, said.err) == (1, "ccmctl: --message: 1001 characters; at most 1000 are allowed\n")


def test_removed_document_is_gone_from_the_list_and_a_rollback_brings_it_back(desk: Desk) -> None:
    unasked = desk.ccmctl("data", "rm", "common")
    removed = desk.ccmctl("data", "rm", "common", "--yes")
    listed = desk.ccmctl("data", "list").out
    again = desk.ccmctl("data", "rm", "common", "--yes")
    history = desk.ccmctl("data", "history", "common").out
    back = desk.ccmctl("data", "rollback", "common")

    assert (unasked.code, unasked.err) == (
        1,
        'ccmctl: cannot ask "remove common, revision 3?" without a terminal; use --yes\n',
    )
    assert (removed.code, removed.out) == (
        0,
        "common: removed\n  restore:  ccmctl data rollback common\n",
    )
    assert listed.startswith("no data yet")
    assert (again.code, again.out) == (0, "common: already removed, in revision 4\n")
    assert history.splitlines()[1].split()[:2] == ["4", "removed"]
    assert (back.code, back.out) == (0, "common: revision 5\n")
    assert desk.ccmctl("data", "get", "common").out == TEXTS[2]


def test_document_that_never_was_is_not_removed(desk: Desk) -> None:
    said = desk.ccmctl("data", "rm", "comon", "--yes")

    assert (said.code, said.err) == (1, "ccmctl: comon: there is no such document, did you mean `common`?\n")


def test_revisions_and_files_are_compared(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "new.yaml").write_text("data:\n  a: 4\n")
    head = "--- common {}\n+++ {}\n@@ -1,2 +1,2 @@\n data:\n-  a: {}\n+  a: {}\n"

    said = [
        desk.ccmctl("data", "diff", "common", *words).out
        for words in ([], ["1"], ["1", "2"], ["--file", str(tmp_path / "new.yaml")], ["3"])
    ]

    assert said == [
        head.format(2, "common 3", 2, 3),
        head.format(1, "common 3", 1, 3),
        head.format(1, "common 2", 1, 2),
        head.format(3, tmp_path / "new.yaml", 3, 4),
        "common: no difference\n",
    ]


def test_a_difference_is_colored_on_a_terminal_only(desk: Desk) -> None:
    assert "\x1b[" in desk.ccmctl("data", "diff", "common", is_terminal=True).out
    assert "\x1b[" not in desk.ccmctl("data", "diff", "common").out
    [record] = desk.ccmctl("data", "diff", "common", "--json", is_terminal=True).records
    assert (record["changed"], "\x1b[" in record["diff"]) == (True, False)


def test_the_edited_document_is_stored(desk: Desk, tmp_path: Path) -> None:
    said = desk.ccmctl("data", "edit", "common", "--yes", environ=editor(tmp_path, 'echo "  b: 1" >> "$1"'))

    assert said.out.endswith("   a: 3\n+  b: 1\ncommon: revision 4\n")


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_no_editor_is_started_without_a_terminal(desk: Desk, tmp_path: Path, words: tuple[str, ...]) -> None:
    started = tmp_path / "started"
    environ = editor(tmp_path, f"touch {started}")

    refused = desk.ccmctl("data", "edit", "common", *words, environ=environ)
    was_started = started.exists()
    control = desk.ccmctl("data", "edit", "common", environ=environ, typed="\n")

    assert (refused.code, was_started) == (1, False)
    assert refused.err == (
        "ccmctl: cannot start an editor without a terminal; use `ccmctl data put common FILE`, or --yes if $EDITOR is a script\n"
    )
    assert (control.code, started.exists()) == (0, True)


def test_an_unsaved_edit_changes_nothing(desk: Desk, tmp_path: Path) -> None:
    said = desk.ccmctl("data", "edit", "common", "--yes", environ=editor(tmp_path, "true"))

    assert (said.code, said.out) == (0, "common: not saved in the editor, so nothing is changed\n")
    assert len(desk.broker.buckets["CCM_DATA"]) == 3


def test_an_edit_that_cannot_be_stored_is_kept_in_a_file(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    said = desk.ccmctl("data", "edit", "common", "--yes", environ=editor(tmp_path, 'echo "- a" > "$1"'))

    [kept] = tmp_path.glob("ccmctl-*.yaml")
    assert said.err == (
        "ccmctl: common: not Hiera data: its top-level value is not a mapping\n"
        f"your text is saved in {kept}\n"
    )
    assert (kept.read_text(), kept.stat().st_mode & 0o777) == ("- a\n", 0o600)


def test_an_edit_of_a_concurrently_changed_document_is_refused(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def edit(text: str, **_: object) -> str:
        (tmp_path / "other.yaml").write_text("data: {other: 1}\n")
        desk.ccmctl("data", "put", "common", str(tmp_path / "other.yaml"))
        return f"{text}  mine: 1\n"

    monkeypatch.setattr("click.edit", edit)

    said = desk.ccmctl("data", "edit", "common", "--yes")

    assert said.code == 1
    assert said.err.startswith(
        "ccmctl: common: the newest revision is 4, not 3; check it first\nyour text is"
    )


@pytest.mark.parametrize("name", ["data", "hierarchy", "overrides"])
def test_a_document_that_hiera_cannot_read_is_not_stored(tmp_path: Path, name: str) -> None:
    (tmp_path / "x.yaml").write_text(f"{name}: [1]\n")
    desk = Desk()

    said = desk.ccmctl("data", "put", "x", str(tmp_path / "x.yaml"))

    assert said.err == f"ccmctl: {tmp_path}/x.yaml: $.{name}: not Hiera data: expected a mapping\n"
    assert desk.broker.buckets.get("CCM_DATA", []) == []


def test_assigned_facts_are_listed() -> None:
    desk = Desk(FakeNode("web1", is_present=False))
    desk.ccmctl("facts", "set", "web1", "role=web")
    desk.ccmctl("facts", "set", "web1", "role=db")

    lines = desk.ccmctl("facts", "history", "web1").out.splitlines()

    assert [line.split()[-1] for line in lines] == ["FACTS", '{"role":"db"}', '{"role":"web"}']
    assert desk.ccmctl("facts", "history", "web2").err == (
        "ccmctl: web2: there is no such node with assigned facts; see `ccmctl node list`\n"
    )
