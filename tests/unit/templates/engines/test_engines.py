"""What every engine promises, tried on each."""

from typing import Any

import pytest

from ccm_agent.model.errors import ExpressionError, TemplateError
from ccm_agent.templates.engines import NAMES, TemplateEngine, bounds, engine
from ccm_agent.templates.engines.bounds import OUTPUT_MAX

VARIABLES: dict[str, Any] = {
    "facts": {"host": "web1"},
    "data": {"port": 80, "names": ["a", "b"]},
    "environ": {"A": "1"},
}

# The same thing said in each language.
PORT = {"jet": "port [[ data.port ]]\n", "go": "port {{ .data.port }}\n", "jinja": "port {{ data.port }}\n"}
LIST = {
    "jet": "[[ range data.names ]]<[[ . ]]>[[ end ]]",
    "go": "{{ range .data.names }}<{{ . }}>{{ end }}",
    "jinja": "{% for name in data.names %}<{{ name }}>{% endfor %}",
}
FAILS_ON_LINE_3 = {
    "jet": "a\n\n[[ nosuch ]]\n",
    "go": "a\n\n{{ index .data.names 9 }}\n",
    "jinja": "a\n\n{{ nosuch }}\n",
}
MALFORMED_ON_LINE_2 = {"jet": "a\n[[ if ]]", "go": "a\n{{ if }}", "jinja": "a\n{% if %}"}
CALL = {"jet": '[[ lookup("x") ]]', "go": '{{ lookup "x" }}', "jinja": '{{ lookup("x") }}'}
TWO_ARGUMENTS = {"jet": '[[ lookup("x", 2) ]]', "go": '{{ lookup "x" 2 }}', "jinja": '{{ lookup("x", 2) }}'}
CLASS = {
    "jet": ["[[ data.__class__.x ]]", '[[ data.names["__class__"] ]]', "[[ lookup.__globals__ ]]"],
    "go": [
        "{{ .data.names.__class__ }}",
        '{{ index .data.names "__class__" }}',
        "{{ $x := 5 }}{{ $x.__class__ }}",
    ],
    "jinja": [
        "{{ data.__class__ }}",
        '{{ data["__class__"] }}',
        "{{ lookup.__globals__ }}",
        '{{ ""|attr("__class__") }}',
    ],
}
ENDLESS_LOOP = {
    "jet": "[[ range ints(0, 2000000) ]][[ range ints(0, 2000000) ]][[ end ]][[ end ]]",
    "go": "{{ range 2000000 }}{{ range 2000000 }}{{ end }}{{ end }}",
    "jinja": "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
}
DOUBLED = {
    "jet": '[[ x := "aaaaaaaa" ]][[ range ints(0, 60) ]][[ x = x + x ]][[ end ]]',
    "go": '{{ $x := "aaaaaaaa" }}{{ range 60 }}{{ $x = print $x $x }}{{ end }}',
    "jinja": '{% set n = namespace(x="aaaaaaaa") %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}',
}
REPEATED = {
    "jet": '[[ repeat("a", 1000000000000) ]]',
    "go": '{{ repeat 1000000000000 "a" }}',
    "jinja": '{{ "a" * 1000000000000 }}',
}
ITSELF = {
    "jet": "[[ block b() ]][[ yield b() ]][[ end ]]",
    "go": '{{ define "t" }}{{ template "t" }}{{ end }}{{ template "t" }}',
    "jinja": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
}


COUNTED = ("jet", "go")
"""Engines that count what they do. Jinja is bounded by its process: see tests/unit/system/test_render_process.py."""


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def lookup(key: str) -> str:
    if key == "bad":
        raise ExpressionError("no such key")
    return f"<{key}>"


def render(name: str, text: str, **options: Any) -> str:
    options.setdefault("functions", {"lookup": lookup})
    return engine(name).render(text, VARIABLES, name="motd", **options)


def failure(name: str, text: str, **options: Any) -> TemplateError:
    with pytest.raises(TemplateError) as caught:
        render(name, text, **options)
    return caught.value


def test_an_unknown_engine_is_an_error_that_lists_the_known() -> None:
    with pytest.raises(TemplateError, match="'mustache' is not known: it is one of jet, go, jinja"):
        engine("mustache")


def test_each_engine_fits_the_protocol(name: str) -> None:
    made: TemplateEngine = engine(name)

    assert (made.left, made.right) == (("[[", "]]") if name == "jet" else ("{{", "}}"))


def test_variables_are_named_and_text_around_stays(name: str) -> None:
    assert render(name, PORT[name]) == "port 80\n"


def test_lists_are_ranged_over(name: str) -> None:
    assert render(name, LIST[name]) == "<a><b>"


def test_other_delimiters_leave_the_usual_ones_alone(name: str) -> None:
    port = ".data.port" if name == "go" else "data.port"

    text = render(name, f"<% {port} %> {{{{ x }}}} [[ y ]]", left="<%", right="%>")

    assert text == "80 {{ x }} [[ y ]]"


def test_a_failure_names_the_template_and_its_line(name: str) -> None:
    error = failure(name, FAILS_ON_LINE_3[name])

    assert error.place is not None
    assert (error.place.source, error.place.line) == ("motd", 3)


def test_a_malformed_template_names_its_line(name: str) -> None:
    error = failure(name, MALFORMED_ON_LINE_2[name])

    assert error.place is not None
    assert (error.place.source, error.place.line) == ("motd", 2)


def test_functions_are_called_with_plain_values(name: str) -> None:
    assert render(name, CALL[name]) == "<x>"


def test_a_function_that_is_called_wrongly_is_an_error_of_the_template(name: str) -> None:
    assert "'lookup' cannot be called like this" in str(failure(name, TWO_ARGUMENTS[name]))


def test_an_error_of_a_function_gets_the_place_of_the_call(name: str) -> None:
    error = failure(name, "\n" + CALL[name].replace('"x"', '"bad"'))

    assert "no such key" in error.message
    assert str(error).startswith("motd:2: ")


def test_nothing_of_python_can_be_reached(name: str) -> None:
    for text in CLASS[name]:
        failure(name, text)


@pytest.mark.parametrize("name", COUNTED)
def test_a_loop_without_end_is_stopped(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "STEPS_MAX", 50_000)

    assert "runs too long" in str(failure(name, ENDLESS_LOOP[name]))


@pytest.mark.parametrize("name", COUNTED)
@pytest.mark.parametrize("texts", [DOUBLED, REPEATED], ids=["by doubling", "at once"])
def test_text_without_end_is_not_made(name: str, texts: dict[str, str]) -> None:
    assert f"too long: more than {OUTPUT_MAX} characters" in str(failure(name, texts[name]))


def test_a_template_within_itself_is_stopped(name: str) -> None:
    assert "nested too deeply" in str(failure(name, ITSELF[name]))


def test_one_engine_renders_the_same_text_again(name: str) -> None:
    made = engine(name)

    texts = [made.render(LIST[name], {"data": {"names": [n]}}, name="x") for n in "ab"]

    assert texts == ["<a>", "<b>"]


def test_the_context_of_a_partial_is_its_argument(name: str) -> None:
    text = {"jet": "[[ .port ]]", "go": "{{ .port }}", "jinja": "{{ port }}"}[name]

    assert render(name, text, context={"port": 8080}) == "8080"


def test_a_partial_can_be_handed_all_there_is(name: str) -> None:
    made = engine(name)
    partial = {"jet": "<[[ .data.port ]]>", "go": "<{{ .data.port }}>", "jinja": "<{{ data.port }}>"}[name]
    page = {"jet": '[[ render("p", .) ]]', "go": '{{ render "p" . }}', "jinja": '{{ render("p", {}) }}'}[name]

    def render_partial(path: str, context: Any) -> str:
        return made.render(partial, VARIABLES, name=path, context=context)

    text = made.render(
        page, VARIABLES, name="page", context=dict(VARIABLES), functions={"render": render_partial}
    )

    assert text == "<80>"
