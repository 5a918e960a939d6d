"""The questions of a form, and what becomes of the answers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ccm_agent.model.errors import UsageError
from ccm_agent.plugins import form
from ccm_agent.plugins.definition import FormQuestion
from ccm_agent.plugins.form import FormReader
from ccm_agent.plugins.rendering import PluginRenderer


class Person:
    """Gives the answers of a test, in order."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.seen: list[str] = []

    def show(self, text: str) -> None:
        self.seen.append(text)

    def ask(self, question: str, *, otherwise: str = "", about: str = "", is_secret: bool = False) -> str:
        self.seen.append(f"{question}{'*' if is_secret else ''}")
        return self.answers.pop(0) or otherwise


def reader(person: Person) -> FormReader:
    renderer = PluginRenderer(
        {"port": "4222"}, {"fast": True}, environ={}, folder="/p", helper=lambda: "/tmp/helper"
    )
    return FormReader(person, renderer)


def answers(questions: list[dict[str, Any]], *given: str) -> dict[str, Any]:
    person = Person(*given)
    found = reader(person).read(msgspec.convert(questions, list[FormQuestion]))
    assert person.answers == []
    return found


PAGE: list[dict[str, Any]] = [
    {
        "name": "listen",
        "description": "The address",
        "required": True,
        "default": "127.0.0.1:{{ .Arguments.port }}",
    },
    {
        "name": "accounts",
        "type": "object",
        "empty": "absent",
        "properties": [
            {
                "name": "users",
                "required": True,
                "type": "array",
                "properties": [
                    {"name": "user", "required": True},
                    {"name": "password", "type": "password", "required": True},
                ],
            }
        ],
    },
]


def test_answers_are_nested_as_the_questions_are() -> None:
    given = ["", "y", "USERS", "user1", "secret", "y", "user2", "", "hidden", "n", "n"]
    users = [{"user": "user1", "password": "secret"}, {"user": "user2", "password": "hidden"}]

    assert answers(PAGE, *given) == {"listen": "127.0.0.1:4222", "USERS": {"users": users}}
    assert answers(PAGE, "x:1", "n") == {"listen": "x:1"}


@pytest.mark.parametrize(
    ("question", "given", "found"),
    [
        ({"type": "integer"}, ("x", "7"), {"q": 7}),
        ({"type": "float", "default": "1.5"}, ("",), {"q": 1.5}),
        ({"type": "bool"}, ("what", "Yes"), {"q": True}),
        ({"type": "bool", "default": "true"}, ("",), {"q": True}),
        ({"type": "bool", "default": "true"}, ("n",), {"q": False}),
        ({"enum": ["a", "b"], "required": True}, ("c", "b"), {"q": "b"}),
        ({"validation": "isIP(value)", "required": True}, ("", "x", "::1"), {"q": "::1"}),
        ({"validation": "isIP(value)"}, ("",), {"q": ""}),
        ({"empty": "absent"}, ("",), {}),
        ({"empty": "array"}, ("",), {"q": []}),
        ({"empty": "object"}, ("",), {"q": {}}),
        ({"type": "array"}, ("y", "a", "y", "b", ""), {"q": ["a", "b"]}),
        ({"type": "array"}, ("",), {"q": []}),
        ({"type": "array", "empty": "absent"}, ("",), {}),
        ({"type": "array", "required": True}, ("a", ""), {"q": ["a"]}),
        ({"properties": [{"name": "x"}]}, ("1",), {"q": {"x": "1"}}),
        ({"type": "object", "properties": [{"name": "x"}]}, ("y", "k", "1", "n"), {"k": {"x": "1"}}),
        ({"type": "object", "empty": "object", "properties": [{"name": "x"}]}, ("n",), {"q": {}}),
        ({"type": "object", "empty": "array", "properties": [{"name": "x"}]}, ("n",), {"q": []}),
        ({"type": "object", "properties": [{"name": "x"}]}, ("n",), {}),
    ],
)
def test_each_type_takes_what_fits_it(
    question: dict[str, Any], given: tuple[str, ...], found: object
) -> None:
    assert answers([{"name": "q", **question}], *given) == found


@pytest.mark.parametrize(
    ("condition", "is_asked"),
    [
        ("Input.first == 'a'", True),
        ("input.first == 'b'", False),
        ("Flags.fast && Arguments.port == '4222'", True),
        ("Input.absent != nil", False),
        ("isIP(Input.first)", False),
    ],
)
def test_a_condition_names_answers_arguments_and_flags(condition: str, is_asked: bool) -> None:
    questions: list[dict[str, Any]] = [{"name": "first"}, {"name": "second", "conditional": condition}]

    found = answers(questions, "a", *(["b"] if is_asked else []))

    assert found == {"first": "a"} | ({"second": "b"} if is_asked else {})


def test_a_condition_sees_the_entry_that_is_asked_for() -> None:
    inner = [{"name": "kind"}, {"name": "port", "conditional": "Input.list.kind == 'tcp'"}]

    found = answers(
        [{"name": "list", "type": "array", "properties": inner}], "y", "tcp", "80", "y", "unix", "n"
    )

    assert found == {"list": [{"kind": "tcp", "port": "80"}, {"kind": "unix"}]}


def test_a_password_is_not_shown_and_texts_are_rendered() -> None:
    person = Person("x")
    question = FormQuestion(name="q", type="password", description="Of port {{ .Arguments.port }}")

    reader(person).read([question])

    assert person.seen == ["Of port 4222", "q*"]


def test_a_form_that_cannot_be_asked_or_does_not_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="the condition `1 \\+` cannot be evaluated"):
        reader(Person()).read([FormQuestion(name="q", conditional="1 +")])
    with pytest.raises(UsageError, match="the validation `nosuch\\(\\)` cannot be evaluated"):
        reader(Person("x")).read([FormQuestion(name="q", validation="nosuch()")])
    monkeypatch.setattr(form, "ANSWERS_LIMIT", 3)
    with pytest.raises(UsageError, match="accepts at most 3 answers"):
        reader(Person(*"yayay")).read([FormQuestion(name="q", type="array")])
