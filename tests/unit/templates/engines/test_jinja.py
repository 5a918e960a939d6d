"""Jinja: what is ours about it. That Jinja renders Jinja is Jinja's to test."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccm_agent.model.errors import TemplateError, TemplateLimitError
from ccm_agent.model.gathered import with_go_names
from ccm_agent.templates.engines import jinja
from ccm_agent.templates.engines.jinja import Jinja

DATA: dict[str, Any] = {"x": 1, "items": [1, 2], "m": {"b": 2, "a": [None, True]}, "text": "a,b"}
FILES = {
    "/part": "<{{ data.x }}>",
    "/base": "[{% block body %}{% endblock %}]",
    "/self": '{% include "/self" %}',
}


FACTS = with_go_names({"memory": {"swap": {"devices": [{"name": "/swap", "usedBytes": 1, "freeBytes": 2}]}}})


def render(text: str, **options: Any) -> str:
    return Jinja().render(
        text, {"facts": FACTS, "data": DATA, "environ": {}}, name="motd", load=FILES.get, **options
    )


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("a\n", "a\n", id="the last newline stays"),
        pytest.param("a\r\n{{ 1 }}\r\n", "a\r\n1\r\n", id="line ends stay"),
        pytest.param("{{ '<b>' }}", "<b>", id="nothing is escaped"),
        pytest.param("{{ data.items }}", "[1, 2]", id="a member comes before a method"),
        pytest.param("{{ data.m.items() | list }}", "[('b', 2), ('a', [None, True])]", id="methods of maps"),
        pytest.param("{{ data.text.split(',') }}", "['a', 'b']", id="methods of text"),
        pytest.param("{{ data.m }}", "{'b': 2, 'a': [None, True]}", id="maps print as Python shows them"),
        pytest.param(
            "{% for i in data.items %}{{ loop.index }}/{{ loop.length }} {% endfor %}",
            "1/2 2/2 ",
            id="loop counts",
        ),
        pytest.param("{% for i in [] %}x{% else %}none{% endfor %}", "none", id="an empty loop has an else"),
        pytest.param("{{ 'a' ~ 1 ~ data.x }}", "a11", id="joining"),
        pytest.param("{% set n = namespace(v=1) %}{% set n.v = 2 %}{{ n.v }}", "2", id="namespaces"),
        pytest.param("{% macro m(a) %}<{{ a }}>{% endmacro %}{{ m(1) }}", "<1>", id="macros"),
        pytest.param('{% include "/part" %}', "<1>", id="include"),
        pytest.param('{% extends "/base" %}{% block body %}B{% endblock %}', "[B]", id="extends"),
        pytest.param(
            "{{ [1, 2] | join('-') }} {{ [{'a': 1}] | join(',', attribute='a') }}", "1-2 1", id="join"
        ),
        pytest.param("{{ {'b': 1} | tojson }}", '{"b": 1}', id="tojson"),
        pytest.param(
            "{% for d in facts.memory.swap.devices %}{{ d.Name }} {{ d.name }} {{ d['FreeBytes'] }}{% endfor %}",
            "/swap /swap 2",
            id="gathered facts have two names",
        ),
        pytest.param(
            "{{ facts.memory.swap.devices[0] }}",
            '{"name":"/swap","usedBytes":1,"freeBytes":2}',
            id="a gathered fact prints as JSON",
        ),
        pytest.param(
            "{{ facts.memory.swap.devices[0].size | default('unknown') }}",
            "unknown",
            id="a gathered fact can have a default",
        ),
        pytest.param(
            "{{ facts.memory.swap.devices[0].items() | list | length }}", "3", id="a gathered fact is a map"
        ),
    ],
)
def test_templates_render(text: str, want: str) -> None:
    assert render(text) == want


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\n{{ data.no }}", "motd:2: 'dict object' has no attribute 'no'"),
        (
            "{{ facts.memory.swap.devices[0].UsedByte }}",
            "motd:1: the gathered fact mem.SwapDevice has no field `UsedByte`, did you mean `UsedBytes`?",
        ),
        (
            "{{ facts.memory.swap.devices[0]['size'] }}",
            "motd:1: the gathered fact mem.SwapDevice has no field `size`; the fields are name, usedBytes, freeBytes",
        ),
        ("{% if %}", "motd:1: Expected an expression, got 'end of statement block'"),
        ("{{ data.items.append(1) }}", "motd:1: access to attribute 'append' of 'list' object is unsafe."),
        ("{{ data.m.clear() }}", "motd:1: access to attribute 'clear' of 'dict' object is unsafe."),
        ("{{ 1 / 0 }}", "motd:1: division by zero"),
        ("{{ 5 | dictsort }}", "motd:1: 'int' object has no attribute 'items'"),
        ('{% include "/no" %}', "motd:1: template '/no' does not exist"),
        ('{% include "/self" %}', "motd:1: template is nested too deeply"),
    ],
)
def test_errors_have_their_place(text: str, message: str) -> None:
    with pytest.raises(TemplateError) as caught:
        render(text)

    assert str(caught.value) == message


def test_include_without_other_templates_reports_it() -> None:
    with pytest.raises(TemplateError, match="there are no other templates to include or extend here"):
        Jinja().render('{% include "x" %}', {}, name="motd")


def test_a_context_must_be_a_mapping() -> None:
    with pytest.raises(TemplateError, match="the context of a Jinja template is a mapping"):
        render("x", context=[1])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "{% set n = namespace(a=3) %}\n{% for i in range(60) %}{% set n.a = n.a * n.a %}{% endfor %}",
            "motd:2: an integer has at most 4096 bits: '*' makes a larger one",
        ),
        ("{{ 10 ** 10000000 }}", "motd:1: an integer has at most 4096 bits: '**' makes a larger one"),
        (
            "{{ range(1000000000) | list }}",
            "motd:1: Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000).",
        ),
        ("{{ 'a' | urlize }}", "motd:1: No filter named 'urlize'."),
    ],
)
def test_a_call_that_could_take_hours_is_refused(text: str, message: str) -> None:
    with pytest.raises(TemplateError) as caught:
        render(text)

    assert str(caught.value) == message


def test_output_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jinja, "OUTPUT_MAX", 1000)

    assert len(render("{% for i in range(100) %}{{ 'a' * 10 }}{% endfor %}")) == 1000
    with pytest.raises(TemplateLimitError, match="motd: output is too long: more than 1000 characters"):
        render("{% for i in range(101) %}{{ 'a' * 10 }}{% endfor %}")


@pytest.mark.parametrize(("value", "want"), [(2**2000, str(2**2000 * 4)), (-5, "-20"), (True, "4")])
def test_integers_may_be_large(value: int, want: str) -> None:
    assert Jinja().render("{{ x * 4 }}", {"x": value}, name="motd") == want


TAGS = (
    "{% if x %}",
    "{% else %}",
    "{% endif %}",
    "{% for a in data.items %}",
    "{% endfor %}",
    "{% set a = 1 %}",
    "{% block b %}",
)
ENDS = (
    "{% endblock %}",
    "{% macro m() %}",
    "{% endmacro %}",
    "{% raw %}",
    "{% endraw %}",
    "{# c #}",
    "{{",
    "}}",
    "{%",
    "%}",
)
VALUES = (
    "{{ data.x }}",
    "{{ data.m.a | first }}",
    "{{ 'a' ~ 1 }}",
    "{{ x }}",
    "{{ data | length }}",
    "{{ 1 + 'a' }}",
    "text",
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(TAGS + ENDS + VALUES), max_size=10).map("".join))
def test_no_text_does_worse_than_fail(text: str) -> None:
    failure = None
    try:
        render(text)
    except TemplateError as err:
        failure = err

    assert failure is None or str(failure).startswith("motd")


FILTERS = (
    "abs attr batch capitalize center count default dictsort escape filesizeformat first float forceescape format groupby "
    "indent int items join last length list lower map max min pprint random reject rejectattr replace reverse round safe "
    "select selectattr slice sort string striptags sum title tojson trim truncate unique upper urlencode wordcount "
    "wordwrap xmlattr"
)


@pytest.mark.parametrize("text", ["{{ data.x * 1e9999 }}", "{{ data.x + (1e308 + 1e308) }}"])
def test_a_constant_beyond_the_largest_float_is_an_error_with_its_line(text: str) -> None:
    with pytest.raises(TemplateError, match="motd:2: a number is beyond the largest float"):
        render(f"\n{text}")


@pytest.mark.parametrize("name", FILTERS.split())
@pytest.mark.parametrize("value", ["5", "'a b'", "data.items", "data.m", "none", "1.5", "data.m.items()"])
def test_no_filter_does_worse_than_fail(name: str, value: str) -> None:
    for arguments in ("", "(2)", "('a')", "('a', 'b')", "(none)"):
        failure = None
        try:
            render(f"{{{{ {value} | {name}{arguments} }}}}")
        except TemplateError as err:
            failure = err

        assert failure is None or str(failure).startswith("motd:1: ")
