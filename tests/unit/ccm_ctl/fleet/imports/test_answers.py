"""Answers of nodes to an import, honest and hostile."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import to_builtins

from ccm_agent.model.records.host_import import (
    PART_CHARACTERS,
    FoundResource,
    HostResources,
    split_resources,
)
from ccm_agent.model.wire import SESSION_ANSWER, Answer
from ccm_ctl.fleet.imports.answers import ACCEPT_S, ALL_S, LOOK_S, QUIET_S, ImportAnswer, ImportAnswers

LONG = HostResources(
    resources=[
        FoundResource(type="user", name=f"u{number}", properties={"comment": "é" * 1000})
        for number in range(200)
    ]
)
PARTS = [to_builtins(part) for part in split_resources(LONG)]
[SHORT] = [to_builtins(part) for part in split_resources(HostResources())]


def an_answer(state: str, body: dict[str, Any] | None = None, **fields: Any) -> Answer:
    return Answer(protocol=SESSION_ANSWER, state=state, body=body or {}, **fields)


def heard(*bodies: dict[str, Any]) -> ImportAnswers:
    answers = ImportAnswers(["web1"], 0)
    for body in bodies:
        answers.heard("web1", an_answer("done", body), 1)
    return answers


@pytest.mark.parametrize("order", [1, -1], ids=["in order", "reversed"])
def test_parts_are_joined_in_any_order_and_repeated_ones_count_once(order: int) -> None:
    assert len(PARTS) > 3
    assert all(len(part["text"]) <= PART_CHARACTERS for part in PARTS)

    answers = heard(*PARTS[::order][:-1], *PARTS[::order])

    assert answers.ended == {"web1": ImportAnswer(state="imported", found=LONG)}


def test_parts_of_an_earlier_answer_are_not_mixed_in() -> None:
    other = [part | {"digest": "0" * 64} for part in PARTS]

    answers = heard(*other[:-1], *PARTS)

    assert answers.ended == {"web1": ImportAnswer(state="imported", found=LONG)}


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"version": "1.2.3"},
        SHORT | {"part": -1},
        SHORT | {"part": 1},
        SHORT | {"parts": 0},
        SHORT | {"parts": 10**9},
        SHORT | {"part": 10**30},
        SHORT | {"digest": "0" * 64},
        SHORT | {"digest": 5},
        SHORT | {"text": ["x"]},
        SHORT | {"text": "x" * (PART_CHARACTERS + 1)},
    ],
    ids=str,
)
def test_malformed_answer_ends_the_node_with_an_error(body: dict[str, Any]) -> None:
    ended = heard(body).ended["web1"]

    assert (ended.state, ended.found) == ("refused", None)
    assert ended.reason.startswith("its answer cannot be read: ")


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{",
        '{"resources": 5}',
        '{"resources": [{"type": 1, "name": "a", "properties": {}}]}',
        "[" * 5000,
    ],
)
def test_text_of_another_form_ends_the_node_with_an_error(text: str) -> None:
    import hashlib

    ended = heard(SHORT | {"text": text, "digest": hashlib.sha256(text.encode()).hexdigest()}).ended["web1"]

    assert (ended.state, ended.found) == ("refused", None)


def test_control_of_the_malformed_answers_is_imported() -> None:
    assert heard(SHORT).ended == {"web1": ImportAnswer(state="imported", found=HostResources())}


def test_refusal_has_the_reason_of_the_node() -> None:
    answers = ImportAnswers(["web1"], 0)
    answers.heard("web1", an_answer("refused", reason="no"), 1)
    answers.heard("other", an_answer("done", SHORT), 1)

    assert answers.ended == {"web1": ImportAnswer(state="refused", reason="no")}


def test_silent_node_ends_after_a_while_and_one_that_looks_later() -> None:
    answers = ImportAnswers(["a", "b"], 0)
    answers.heard("b", an_answer("accepted"), 0)

    assert (answers.silent, answers.late(ACCEPT_S), answers.open) == (["a"], [], ["b"])
    answers.heard("b", an_answer("accepted"), LOOK_S - 1)
    answers.late(LOOK_S)
    assert {name: one.state for name, one in answers.ended.items()} == {"a": "silent", "b": "silent"}


def test_node_whose_parts_are_lost_is_asked_again_once() -> None:
    answers = ImportAnswers(["web1"], 0)
    answers.heard("web1", an_answer("accepted"), 0)
    answers.heard("web1", an_answer("done", PARTS[0]), 1)

    assert answers.late(QUIET_S) == []
    assert answers.late(QUIET_S + 1) == ["web1"]
    assert answers.late(3 * QUIET_S) == []
    assert answers.open == ["web1"]


@pytest.mark.parametrize("is_changed", [False, True], ids=["the same part", "parts of other answers"])
def test_node_that_never_sends_all_parts_ends(is_changed: bool) -> None:
    answers, now = ImportAnswers(["web1"], 0), 0
    while answers.open and now < 2 * ALL_S:
        now += 1
        digest = f"{now:064d}" if is_changed else PARTS[0]["digest"]
        answers.heard("web1", an_answer("done", PARTS[0] | {"digest": digest}), now)
        answers.late(now)

    assert now <= ALL_S
    assert answers.ended["web1"] == ImportAnswer(state="silent", reason=f"no complete answer in {now}s")


def test_node_in_whose_name_others_answer_is_forged_unless_it_answers_itself() -> None:
    answers = ImportAnswers(["a", "b"], 0)
    answers.distrust("a", "it is not signed")
    answers.distrust("b", "it is not signed")
    answers.heard("b", an_answer("done", SHORT), 1)
    answers.late(ACCEPT_S)

    assert answers.ended["a"] == ImportAnswer(state="forged", reason="it is not signed")
    assert answers.ended["b"].state == "imported"
