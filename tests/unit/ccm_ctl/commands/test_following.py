"""What `ccmctl data put|edit|rollback` say and ask when nodes follow the document."""

from __future__ import annotations

from pathlib import Path

import pytest

from ccm_agent.model.wire import AssignmentState
from tests.support.controller import BEFORE, Desk, FakeNode, Said

MOTD = """\
ccm:
  resources:
    - file:
        - /etc/motd: {ensure: present, content: hello, owner: root, group: root, mode: "0644"}
"""
COMMON = "kv://CCM_DATA/common"
NOTE = "the assignment web follows it: 2 nodes will apply it again: web[1-2]\n"
QUESTION = "store common, which changes 2 nodes? [y/N] "


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """web1 and web2 follow `common`; db1 does not."""
    desk = Desk(*(FakeNode(name, {"role": name[:-1]}) for name in ("web1", "web2", "db1")))
    (tmp_path / "motd.yaml").write_text(MOTD)
    assert put(desk, tmp_path, 1).code == 0
    words = ["-t", "role=web", "--data", COMMON, "--follow-data", "--yes"]
    assert desk.ccmctl("assign", "web", str(tmp_path / "motd.yaml"), *words).code == 0
    told = AssignmentState(
        key="fact.role.web.web", revision=BEFORE + 1, state="stable", data_revisions={COMMON: 1}
    )
    for node in desk.nodes[:2]:
        node.record = {"assignments": {"web": told}}
    return desk


def put(desk: Desk, folder: Path, value: int, *words: str, typed: str = "", key: str = "common") -> Said:
    """Store a document that says so."""
    path = folder / "data.yaml"
    path.write_text(f"data: {{a: {value}}}\n")
    return desk.ccmctl("data", "put", key, str(path), *words, typed=typed, environ={"NO_COLOR": "1"})


@pytest.mark.parametrize(("typed", "code", "revisions"), [("y\n", 0, 2), ("n\n", 1, 1)])
def test_operator_at_a_terminal_is_asked_before_nodes_change(
    desk: Desk, tmp_path: Path, typed: str, code: int, revisions: int
) -> None:
    said = put(desk, tmp_path, 2, typed=typed)

    assert (said.code, said.err) == (code, NOTE + QUESTION)
    assert len(desk.broker.buckets["CCM_DATA"]) == revisions


def test_script_is_reported_and_not_asked(desk: Desk, tmp_path: Path) -> None:
    said = put(desk, tmp_path, 2)

    assert (said.code, said.err) == (0, NOTE)
    assert said.out.endswith("common: revision 2\n")


def test_yes_answers_the_question_before_it_is_asked(desk: Desk, tmp_path: Path) -> None:
    said = put(desk, tmp_path, 2, "--yes", typed="n\n")

    assert (said.code, said.err) == (0, NOTE)


def test_document_that_does_not_change_and_one_that_no_node_follows_are_stored_without_a_question(
    desk: Desk, tmp_path: Path
) -> None:
    same = put(desk, tmp_path, 1, typed="n\n")
    other = put(desk, tmp_path, 2, typed="n\n", key="role/db")

    assert (same.code, same.out, same.err) == (0, "common: unchanged, revision 1\n", "")
    assert (other.code, other.out, other.err) == (0, "role/db: revision 2\n", "")


def test_rollback_asks_too(desk: Desk, tmp_path: Path) -> None:
    put(desk, tmp_path, 2)

    said = desk.ccmctl("data", "rollback", "common", typed="n\n", environ={"NO_COLOR": "1"})

    assert (said.code, said.err) == (1, NOTE + QUESTION)


def test_edit_that_is_not_stored_is_kept_in_a_file(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("click.edit", lambda text, **_: f"{text}# mine\n")

    said = desk.ccmctl("data", "edit", "common", typed="n\n", environ={"NO_COLOR": "1"})

    [kept] = tmp_path.glob("ccmctl-*.yaml")
    assert (said.code, said.err) == (
        1,
        f"{NOTE}{QUESTION}your text is saved in {kept}\n",
    )
    assert kept.read_text() == "data: {a: 1}\n# mine\n"


def test_document_that_nodes_follow_is_removed_with_force_only(desk: Desk) -> None:
    refused = desk.ccmctl("data", "rm", "common", "--yes")
    forced = desk.ccmctl("data", "rm", "common", "--yes", "--force")

    assert (refused.code, refused.err) == (
        1,
        "ccmctl: common: the assignment web follows it on 2 nodes (web[1-2]): they would keep the last revision, and a new "
        "node would fail; store `{}` for no data, or remove it with --force\n",
    )
    assert (forced.code, desk.ccmctl("data", "get", "common").code) == (0, 1)
