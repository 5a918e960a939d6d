"""Jet where the conformance cases do not reach: other templates, errors as they are read, what we do differently."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccm_agent.model.errors import TemplateError
from ccm_agent.templates.engines.jet import Jet
from ccm_agent.templates.values import StringMap

FILES = {
    "/layout.jet": "<[[ yield body() ]]|[[ block foot() ]]foot[[ end ]]>",
    "/page.jet": '[[ extends "layout.jet" ]]not shown[[ block body() ]]BODY [[ data.x ]][[ end ]]',
    "/blocks.jet": "[[ block hello(name) ]]hello [[ name ]][[ end ]]",
    "/user.jet": "[[ .name ]]=[[ data.x ]]",
    "/value.jet": "not shown[[ return data.x + 1 ]]",
    "/circle.jet": '[[ import "circle.jet" ]]',
    "/again.jet": '[[ include "again.jet" ]]',
    "/broken.jet": "\n[[ nosuch ]]",
    "/deep/one.jet": '[[ include "two" ]]',
    "/deep/two.jet": "two",
}


def render(text: str, data: dict[str, Any] | None = None, **options: Any) -> str:
    variables = {"facts": {}, "data": {"x": 1} if data is None else data, "environ": StringMap(A="1")}
    return Jet().render(text, variables, name="motd", load=FILES.get, **options)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param('[[ include "user.jet" map("name", "ada") ]]', "ada=1", id="a context may be given"),
        pytest.param(
            '[[ x := map("name", "b") ]][[ range slice(x) ]][[ include "/user" ]][[ end ]]',
            "b=1",
            id="or is kept",
        ),
        pytest.param(
            '[[ include "deep/one.jet" ]]', "two", id="paths are relative to the template that names them"
        ),
        pytest.param(
            '[[ import "blocks.jet" ]][[ yield hello(name="ada") ]]', "hello ada", id="import brings blocks"
        ),
        pytest.param(
            '[[ extends "layout.jet" ]]x[[ block body() ]]B[[ end ]]', "<B|foot>", id="extends runs the other"
        ),
        pytest.param(
            '[[ extends "page.jet" ]][[ block foot() ]]F[[ end ]]', "<BODY 1|F>", id="extends over two"
        ),
        pytest.param('[[ exec("value.jet") ]]', "2", id="exec gives what is returned"),
        pytest.param(
            '[[ if includeIfExists("user.jet", map("name", "c")) ]]+[[ end ]]',
            "c=1+",
            id="includeIfExists is true",
        ),
        pytest.param('<[[ includeIfExists("nope.jet") ]]>', "<>", id="includeIfExists prints nothing"),
        pytest.param(
            "[[ if includeIfExists(data.no) ]]+[[ else ]]-[[ end ]]",
            "-",
            id="what is not text is no template",
        ),
        pytest.param(
            '[[ try ]]a[[ include "broken.jet" ]][[ catch e ]][[ e.Error() ]][[ end ]]',
            None,
            id="an error is caught",
        ),
    ],
)
def test_templates_use_one_another(text: str, want: str | None) -> None:
    got = render(text)

    assert got == want if want is not None else "'nosuch' is not known" in got


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("a{* note *}b[[ 1 ]]", "ab1", id="before an action"),
        pytest.param("[[ 1 ]]a{* note *}b", "1ab", id="behind the last action"),
        pytest.param("a{* one *}b{* two *}\n", "ab\n", id="without any action"),
        pytest.param("rm {*.c,*.h}", "rm {*.c,*.h}", id="text of a shell is none"),
    ],
)
def test_comments_are_left_out_wherever_they_stand(text: str, want: str) -> None:
    assert render(text) == want


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[ data.x ", "motd:1: an action is not closed: no ']]' follows"),
        ("a\n{* b\n [[ 1 ]]", "motd:2: a comment is not closed: no '*}' follows its '{*'"),
        ('[[ "abc ]]', 'motd:1: quoted text is not closed: no " follows on its line'),
        ("[[ 'abc' ]]", "motd:1: 'abc' is not one character; text is written with double quotes"),
        ("[[ 5 -3 ]]", "motd:1: '-3' is not allowed here: '|' or the end of the action is expected"),
        ("[[ if data.x ]]", "motd:1: the template ends inside a block: an 'end' is missing"),
        ("[[ end ]]", "motd:1: 'end' belongs to nothing: no block is open"),
        ("\n[[ x = 1 ]]", "motd:2: variable 'x' does not exist yet: make it with ':='"),
        ("[[ data.x.y ]]", "motd:1: 'y' cannot be looked up in a int"),
        ("[[ data.no.y ]]", "motd:1: there is no member 'no', so 'y' cannot be looked up in it"),
        ("[[ data.x() ]]", "motd:1: a int cannot be called: it is not a function"),
        ("[[ upper ]]", "motd:1: a function cannot be printed; is it missing its arguments?"),
        ("[[ range data.x ]][[ end ]]", "motd:1: range goes over lists and maps, not over a int"),
        (
            "[[ range data.l ]][[ . + 1 ]][[ end ]]",
            "motd:1: '+' needs a number, not a boxed int; name it with 'range i, v := …'",
        ),
        (
            "[[ range data.l ]][[ upper(.) ]][[ end ]]",
            "motd:1: 'upper' needs a string, not a boxed int; name it with 'range i, v := …'",
        ),
        ("[[ data.l.a = 1 ]]", "motd:1: member 'a' cannot be set in a []interface {}"),
        ("[[ .data ]]", "motd:1: the context has no member 'data'; it has Data, Environ, Facts"),
        ('[[ include "nope" ]]', "motd:1: template 'nope' does not exist"),
        ('[[ import "nope" ]]', "motd: template 'nope' does not exist"),
        ('[[ extends "" ]]', "motd:1: 'extends' needs the name of a template"),
        ("[[ exec(1) ]]", "motd:1: 'exec' takes the path of a template, not a float64"),
        (
            '[[ json(data.l) == "[1]" ]]',
            "motd:1: JSON cannot be compared with text; compare the value itself",
        ),
        ('[[ import "circle.jet" ]]', "/circle.jet: templates import one another in a circle"),
        (
            '[[ include "again.jet" ]]',
            "/again.jet:1: templates are nested too deeply: more than 100; does one include itself?",
        ),
        (
            '[[ include "broken.jet" ]]',
            "/broken.jet:2: name 'nosuch' is not known here: it is neither a variable nor a function",
        ),
        ("[[ dump() ]]", "motd:1: 'dump' takes the names of variables here, as text: dump(\"name\")"),
        ("[[ lookup(data.no) ]]", "motd:1: 'lookup' is given a missing value"),
    ],
)
def test_errors_name_cause_and_place(text: str, message: str) -> None:
    with pytest.raises(TemplateError) as caught:
        render(text, {"x": 1, "l": [1]}, functions={"lookup": str})

    assert str(caught.value) == message


def test_a_scaffolds_context_has_data_in_lower_case() -> None:
    variables = {"facts": {"os": "linux"}, "data": {"x": 1}, "environ": {}}

    assert (
        Jet().render("[[ .data.x ]] [[ .facts.os ]]", variables, name="motd", context=variables) == "1 linux"
    )


def test_a_lookups_default_reaches_the_function() -> None:
    def lookup(key: str, default: Any = None) -> Any:
        return default

    assert render('[[ lookup("a.b", 80) + 1 ]]', functions={"lookup": lookup}) == "81"


def test_a_range_over_a_map_is_sorted() -> None:
    assert render("[[ range k, v := data ]][[ k ]][[ v ]] [[ end ]]", {"b": 2, "a": 1, "C": 3}) == "C3 a1 b2 "


def test_context_and_scope_are_put_back_after_an_error_that_was_caught() -> None:
    text = "[[ try ]][[ range i, v := data.l ]][[ nosuch ]][[ end ]][[ end ]][[ isset(v) ]]"

    assert render(text, {"l": [1]}) == "false"


def test_printed_context_has_no_python_syntax() -> None:
    assert render("[[ . ]] [[ slice(.) ]]") == "{map[] map[x:1] map[A:1]} [{map[] map[x:1] map[A:1]}]"


def test_the_whole_context_as_json_has_its_members_in_their_order() -> None:
    assert render("[[ json(.) ]] [[ . | writeJson ]]") == (
        '{"facts":{},"data":{"x":1},"environ":{"A":"1"}} {"facts":{},"data":{"x":1},"environ":{"A":"1"}}\n'
    )


def test_a_range_of_numbers_prints_position_and_end() -> None:
    assert render("[[ ints(2, 5) ]]") == "{-1 1 5}"


def test_dump_prints_variables_by_name() -> None:
    assert render('[[ a := "v" ]][[ dump("a", "nosuch", "data") ]]') == (
        "\ta:=v // string\n\tdata:=map[x:1] // map[string]interface {}\n"
    )


CONTROLS = ("if", "else", "end", "range", "try", "catch", "block", "yield", "content", "return")
WORDS = (*CONTROLS, "include", "import", "extends", "nil")
OPERATORS = (":=", "=", "==", "!=", "<", ">=", "+", "-", "*", "/", "%", "!", "&&", "||")
MARKS = ("?", ":", ",", ";", "(", ")", "[", "]", "_", "|")
VALUES = (".", ".a", "a", "data", "x", '"t"', "`r`", "'c'", "1", "0.5", "1e3", "0x1f", "-1")
NAMES = ("upper", "len", "map", "slice", "isset", "ints", "json", "raw", "repeat", "split")
TEXT = ("[[", "]]", "[[-", "-]]", "{*", "*}", "é", "\n", "text")
PIECES = st.sampled_from(WORDS + OPERATORS + MARKS + VALUES + NAMES + TEXT * 3)


def failure_of(text: str, **options: Any) -> TemplateError | None:
    try:
        render(text, {"x": 1, "a": [1, None, "b"]}, **options)
    except TemplateError as err:
        return err
    return None


@settings(max_examples=500, deadline=None)
@given(st.lists(PIECES, max_size=25).map(" ".join))
def test_no_text_does_worse_than_fail(text: str) -> None:
    failure = failure_of(text)

    assert failure is None or failure.place is not None


@settings(max_examples=200, deadline=None)
@given(
    st.text(max_size=60),
    st.sampled_from(["[[", "{{", "<%", "a", "{"]),
    st.sampled_from(["]]", "}}", "%>", "b", "*"]),
)
def test_no_delimiters_do_worse_than_fail(text: str, left: str, right: str) -> None:
    failure = failure_of(f"{text}{left} data.x {right}{text}", left=left, right=right)

    assert failure is None or failure.place is not None


@pytest.mark.parametrize(
    "unit", ["[[ if 1 ]]", "[[ (", "[[ !", "[[ block b() ]]", "[[ a[", "[[ 1 ? ", "[[ - ", "[[ f(", "[[ 1 + "]
)
def test_deep_nesting_is_an_error(unit: str) -> None:
    with pytest.raises(TemplateError):
        render(unit * 5_000)
    with pytest.raises(TemplateError):
        render("[[ " + unit.removeprefix("[[ ") * 5_000)


def test_a_long_chain_of_operators_is_an_error_or_a_value() -> None:
    assert render("[[ " + " + ".join(["1"] * 100) + " ]]") == "100"
    with pytest.raises(TemplateError, match="nested too deeply"):
        render("[[ " + " + ".join(["1"] * 50_000) + " ]]")
