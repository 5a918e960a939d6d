"""Forms: questions with answers that become JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ccm_agent.model.errors import ExpressionError, UsageError
from ccm_agent.plugins.definition import FormQuestion
from ccm_agent.plugins.rendering import PluginRenderer, is_valid

ANSWERS_LIMIT = 10_000
"""The maximum number of answers in one form."""


class FormUser(Protocol):
    """Asks a person the questions of a form."""

    def show(self, text: str) -> None:
        """Show a text before a question."""
        ...

    def ask(self, question: str, *, otherwise: str = "", about: str = "", is_secret: bool = False) -> str:
        """
        Ask a question, and return the answer of one line.

        Args:
            question: The text of the question.
            otherwise: The default, which is used for an empty line.
            about: The help text, shown if the person asks for it.
            is_secret: Whether to hide the answer.
        """
        ...


class FormReader:
    """
    Asks the questions of a form.

    Args:
        user: The person to ask.
        renderer: Renders descriptions, help and defaults.
    """

    def __init__(self, user: FormUser, renderer: PluginRenderer) -> None:
        self._user = user
        self._renderer = renderer
        self._left = ANSWERS_LIMIT

    def read(self, questions: Sequence[FormQuestion]) -> dict[str, Any]:
        """
        Ask the questions, and return the answers by name.

        Raises:
            TemplateError: A text of the form cannot be rendered.
            UsageError: A condition or validation cannot be evaluated, or there are too many answers.
        """
        answers: dict[str, Any] = {}
        self._ask_all(questions, answers, answers)
        return answers

    def _ask_all(self, questions: Sequence[FormQuestion], into: dict[str, Any], root: dict[str, Any]) -> None:
        for one in questions:
            if not one.conditional or self._holds(one.conditional, root):
                self._ask(one, into, root)

    def _holds(self, condition: str, root: dict[str, Any]) -> bool:
        from ccm_agent.hiera.validators import validator_functions
        from ccm_agent.templates.expr.program import ExpressionNames, compile_expression

        values = {**self._renderer.values, "Input": root, "input": root}
        functions = validator_functions()
        try:
            names = ExpressionNames(dict.fromkeys(values, "any"), frozenset(functions))
            return bool(compile_expression(condition, names, is_condition=True).run(values, functions))
        except ExpressionError as err:
            raise UsageError(f"the condition `{condition}` cannot be evaluated: {err}") from err

    def _ask(self, one: FormQuestion, into: dict[str, Any], root: dict[str, Any]) -> None:
        if one.description:
            self._user.show(self._renderer.render(one.description, "description"))
        if one.type == "array":
            found: list[Any] = []
            while self._is_another(
                one, f"Add {'another' if found else 'a first'} entry to {one.name}?", found
            ):
                found.append(self._element(one, root))
            self._put(one, found, into)
        elif one.properties and one.type == "object":
            added: dict[str, Any] = {}
            while self._is_another(one, f"Add an entry to {one.name}?", added):
                name = self._text("Unique name of this entry", one, is_required=True)
                into[name] = added[name] = {}
                self._ask_all(one.properties, added[name], root)
            if not added:
                self._put(one, [] if one.empty == "array" else {}, into, is_kept=bool(one.empty))
        elif one.properties:
            into[one.name] = {}
            self._ask_all(one.properties, into[one.name], root)
        else:
            answer = self._answer(one)
            empty: Any = {"array": [], "object": {}}.get(one.empty, "")
            self._put(one, answer if answer != "" else empty, into)

    def _put(self, one: FormQuestion, answer: Any, into: dict[str, Any], *, is_kept: bool = True) -> None:
        """Store an answer. An empty answer is not stored if the question specifies `empty: absent`."""
        if is_kept and (one.empty != "absent" or answer not in ("", [], {})):
            into[one.name] = answer

    def _is_another(self, one: FormQuestion, question: str, found: Sequence[Any] | Mapping[str, Any]) -> bool:
        return (one.required and not found) or self._confirm(question, one)

    def _element(self, one: FormQuestion, root: dict[str, Any]) -> Any:
        if not one.properties:
            return self._text(one.name, one, is_required=True)
        element: dict[str, Any] = {}
        before = dict(root)
        root[one.name] = element  # a condition can use the answers of the entry that is being asked
        self._ask_all(one.properties, element, root)
        root.clear()
        root |= before
        return element

    def _answer(self, one: FormQuestion) -> Any:
        if one.type == "bool":
            return self._confirm(one.name, one, is_on=one.default.lower() in ("true", "t", "1"))
        if one.type == "integer":
            return int(self._text(one.name, one, is_required=True, checks=("isInt(value)",)))
        if one.type == "float":
            return float(self._text(one.name, one, is_required=True, checks=("isFloat(value)",)))
        return self._text(one.name, one, is_required=one.required)

    def _confirm(self, question: str, one: FormQuestion, *, is_on: bool = False) -> bool:
        words = {"y": True, "yes": True, "n": False, "no": False, "": is_on}
        while True:
            answer = self._line(f"{question} [{'Y/n' if is_on else 'y/N'}]", about=one.help)
            if answer.lower() in words:
                return words[answer.lower()]

    def _text(
        self, question: str, one: FormQuestion, *, is_required: bool, checks: tuple[str, ...] = ()
    ) -> str:
        is_own = question == one.name
        checks = (*checks, one.validation) if is_own and one.validation else checks
        choice = f" [{', '.join(one.enum)}]" if is_own and one.enum else ""
        otherwise = self._renderer.render(one.default, "default") if is_own else ""
        while True:
            answer = self._line(
                f"{question}{choice}",
                about=one.help,
                otherwise=otherwise,
                is_secret=is_own and one.type == "password",
            )
            if not answer and not is_required:
                return ""
            broken = [check for check in checks if not is_valid(answer, check)]
            if not answer:
                self._user.show("An answer is required.")
            elif is_own and one.enum and answer not in one.enum:
                self._user.show(f"Answer with one of {', '.join(one.enum)}.")
            elif broken:
                self._user.show(f"The answer does not satisfy `{broken[0]}`.")
            else:
                return answer

    def _line(self, question: str, *, about: str, otherwise: str = "", is_secret: bool = False) -> str:
        self._left -= 1
        if self._left < 0:
            raise UsageError(f"a form accepts at most {ANSWERS_LIMIT} answers")
        about = self._renderer.render(about, "help") if about else ""
        return self._user.ask(question, otherwise=otherwise, about=about, is_secret=is_secret)
