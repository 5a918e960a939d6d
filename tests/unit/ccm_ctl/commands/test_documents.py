"""What is said of documents and facts that are not there: the nearest that is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.controller import Desk, FakeNode


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    path = tmp_path / "common.yaml"
    path.write_text("data: {a: 1}\n")
    desk = Desk(FakeNode("web1", {"role": "web"}))
    desk.ccmctl("data", "put", "role/web", str(path))
    desk.ccmctl("facts", "set", "web1", "site.dc=ams")
    return desk


@pytest.mark.parametrize("words", ["get", "history", "diff", "rollback"])
@pytest.mark.parametrize(
    ("key", "hint"),
    [("role/wbe", ", did you mean `role/web`?"), ("zzz", "; see `ccmctl data list`")],
)
def test_a_key_that_is_unknown_names_the_nearest(desk: Desk, words: str, key: str, hint: str) -> None:
    said = desk.ccmctl("data", words, key)

    assert (said.code, said.out) == (1, "")
    assert said.err == f"ccmctl: {key}: there is no such document{hint}\n"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("show web1 --assigned site.dcc", "web1: has no fact site.dcc, did you mean `site.dc`?"),
        ("unset web1 site.d", "site.d: not assigned, did you mean `site.dc`?"),
    ],
)
def test_a_fact_that_is_unknown_names_the_nearest(desk: Desk, words: str, sentence: str) -> None:
    said = desk.ccmctl("facts", *words.split())

    assert (said.code, said.out, said.err) == (1, "", f"ccmctl: {sentence}\n")


def test_a_prefix_of_no_key_is_detected_from_no_data_at_all(desk: Desk) -> None:
    assert (
        desk.ccmctl("data", "list", "node/").out
        == "no key begins with node/; `ccmctl data list` lists all keys\n"
    )
    assert desk.ccmctl("data", "list", "node/", "--json").out == ""
    assert Desk().ccmctl("data", "list").out == "no data yet; `ccmctl data put common FILE` stores some\n"
