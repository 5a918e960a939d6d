"""Go templates where the conformance cases do not reach: errors as they are read, bounds, what we do differently."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccm_agent.model.errors import TemplateError
from ccm_agent.templates.engines.go import GoTemplate
from ccm_agent.templates.engines.go.builtins import BUILTINS
from ccm_agent.templates.engines.go.signature import read_signature
from ccm_agent.templates.engines.go.sprig import functions
from ccm_agent.templates.values import StringMap


def render(text: str, data: dict[str, Any] | None = None, **options: Any) -> str:
    variables = {
        "facts": {"os": "linux"},
        "data": {"x": 1} if data is None else data,
        "environ": StringMap(A="1", HOME="/root"),
    }
    return GoTemplate().render(text, variables, name="motd", **options)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{{ .data.x ", "motd:1: an action is not closed: no '}}' follows"),
        ("a\n{{/* b", "motd:2: a comment is not closed: no '*/' follows its '/*'"),
        ("{{/* b */ }}", "motd:1: a comment must be all of its action: '}}' does not follow its '*/'"),
        ("{{ nosuch }}", "motd:1: function 'nosuch' is not known"),
        ("{{ if false }}{{ $y }}{{ end }}", "motd:1: variable '$y' does not exist here"),
        (
            "{{ .data.l[0] }}",
            "motd:1: character '[' is not allowed after a name; elements are looked up with 'index'",
        ),
        ("{{ 1+2 }}", "motd:1: number '1+2' is malformed; sums are 'add 1 2'"),
        ('{{ upper("a") }}', "motd:1: '(' is not allowed here: an argument is expected"),
        ("{{ if 1 }}", "motd:1: the template ends inside a block: an 'end' is missing"),
        ("{{ break }}", "motd:1: 'break' is outside a range"),
        ("{{ nil }}", "motd:1: 'nil' is only allowed as an argument"),
        ('{{ template "t" }}', "motd:1: template 't' is not defined"),
        ("\n{{ upper .data.x }}", "motd:2: 'upper': a string is needed, not a int; 'toString' makes it one"),
        ("{{ upper .data.no }}", "motd:1: 'upper': a string is needed, not nil: is a value missing?"),
        ('{{ repeat (add 1 1) "a" }}', "motd:1: 'repeat': a int is needed, not a int64; 'int' makes it one"),
        ('{{ upper "a" "b" }}', "motd:1: 'upper' takes 1 arguments, not 2"),
        (
            "{{ eq 1 1.0 }}",
            "motd:1: 'eq': a int cannot be compared with a float64; 'float64' and 'int' convert",
        ),
        ("{{ .data.x.y }}", "motd:1: field 'y' cannot be looked up in a int"),
        ("{{ index .data.l 5 }}", "motd:1: 'index': index 5 is out of range: there are 1 elements"),
        (
            "{{ range 1.5 }}{{ end }}",
            "motd:1: range goes over lists, maps and whole numbers, not over a float64",
        ),
        ("{{ deepCopy .data.no }}", "motd:1: 'deepCopy': there is nothing to copy: is a value missing?"),
        ('{{ fail "stop here" }}', "motd:1: 'fail': stop here"),
        ("{{ now.Nope }}", "motd:1: field 'Nope' cannot be looked up in a time.Time"),
        (
            '{{ bcrypt "x" }}',
            "motd:1: 'bcrypt' is not supported: it needs a library for cryptography; "
            "make the secret elsewhere and keep it in data",
        ),
        (
            '{{ getHostByName "x" }}',
            "motd:1: 'getHostByName' is not supported: templates cannot use the network; take the address from facts or data",
        ),
        ('{{ regexFind "(" "a" }}', "motd:1: 'regexFind': the pattern is malformed: missing )"),
        ("{{ 1 | 2 }}", "motd:1: a value can be piped into a function only"),
        ('{{ define "t" }}a{{ end }}{{ define "t" }}b{{ end }}', "motd:1: template 't' is defined twice"),
    ],
)
def test_errors_name_cause_and_place(text: str, message: str) -> None:
    with pytest.raises(TemplateError) as caught:
        render(text, {"x": 1, "l": [1]})

    assert str(caught.value) == message


def test_facts_and_data_are_named_in_lower_case() -> None:
    assert render("{{ .facts.os }} {{ .data.x }} {{ $.environ.A }}") == "linux 1 1"


def test_the_environment_is_that_of_the_template_not_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CCM_TEST_SECRET", "hidden")

    assert (
        render('{{ env "HOME" }} {{ env "CCM_TEST_SECRET" }} {{ expandenv "$HOME/${A}/$CCM_TEST_SECRET" }}')
        == "/root  /root/1/"
    )


def test_keys_and_values_have_an_order() -> None:
    assert render("{{ keys .data }} {{ values .data }}", {"b": 2, "a": 1}) == "[a b] [1 2]"


def test_integers_of_external_functions_are_int64() -> None:
    assert render("{{ typeOf (count) }} {{ count | add 1 }}", functions={"count": lambda *_: 5}) == "int64 6"


def test_a_function_from_outside_replaces_one_of_sprig() -> None:
    assert render('{{ upper "a" }}', functions={"upper": lambda text: f"<{text}>"}) == "<a>"


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ('{{ (toDate "2006-01-02" "2021-03-04").Format "Jan 2" }}', "Mar 4"),
        (
            '{{ with toDate "2006-01-02T15:04:05Z07:00" "2021-03-04T05:06:07Z" }}'
            "{{ .Year }} {{ .Hour }} {{ .Weekday }} {{ .Unix }}{{ end }}",
            "2021 5 Thursday 1614834367",
        ),
        (
            '{{ with toDate "2006-01-02" "2021-03-04" }}{{ .Month }} {{ .Month.String | upper }} {{ .Weekday.String }}{{ end }}',
            "March MARCH Thursday",
        ),
        (
            '{{ $v := semver "1.2.3" }}{{ $v.Major }}.{{ $v.Minor }} {{ $v.LessThan (semver "2.0") }}',
            "1.2 true",
        ),
    ],
)
def test_times_and_versions_have_fields(text: str, want: str) -> None:
    assert render(text) == want


@pytest.mark.parametrize(
    "text",
    [
        "{{ until 100000000 }}",
        "{{ untilStep -9223372036854775807 9223372036854775807 1 }}",
        "{{ seq 1 100000000 }}",
        "{{ $l := list 1 2 3 }}{{ range 60 }}{{ $l = concat $l $l }}{{ end }}",
        '{{ indent 1000000000 "a" }}',
        '{{ printf "%1000000d%1000000d%1000000d%1000000d%1000000d%1000000d%1000000d%1000000d%1000000d%1000000d%1000000d%1000000d'
        '%1000000d%1000000d%1000000d%1000000d%1000000d" 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 }}',
        '{{ $x := repeat 8000000 "a" }}{{ replace "a" $x $x }}',
        '{{ $x := repeat 8000000 "a" }}{{ join $x (until 100) }}',
        '{{ $x := repeat 8000 "a" }}{{ regexReplaceAll "a" $x $x }}',
        "{{ $x := list 1 }}{{ range 60 }}{{ $x = list $x $x }}{{ end }}{{ $x }}",
        "{{ $x := list 1 }}{{ range 60 }}{{ $x = list $x $x }}{{ end }}{{ $y := deepCopy $x }}",
        "{{ randBytes 1000000000 }}",
    ],
)
def test_nothing_grows_without_end(text: str) -> None:
    with pytest.raises(TemplateError, match=r"too long|longer than|more than"):
        render(text)


def test_a_pattern_takes_time_that_is_bounded() -> None:
    assert render('{{ regexMatch "(a+)+$" (print (repeat 5000 "a") "b") }}') == "false"
    assert render('{{ regexFind "(a|aa)+$" (print (repeat 500 "a") "b") }}') == ""


MARKS = ("{{", "}}", "{{-", "-}}", "{{/*", "*/}}", "(", ")", "|", ":=", "=", ",", ".", "$", "é", "\n", "text")
KEYWORDS = ("if", "else", "end", "range", "with", "define", "template", "block", "break", "continue", "nil")
VALUES = (
    ".data",
    ".data.x",
    "$x",
    "$",
    ".",
    '"t"',
    "`r`",
    "'c'",
    "1",
    "0.5",
    "1e3",
    "0x1f",
    "-1",
    "true",
    "3i",
)
NAMES = (
    "print",
    "upper",
    "index",
    "list",
    "dict",
    "eq",
    "and",
    "not",
    "printf",
    "len",
    "add",
    "default",
    "slice",
)


@settings(max_examples=500, deadline=None)
@given(st.lists(st.sampled_from(MARKS * 3 + KEYWORDS + VALUES + NAMES), max_size=25).map(" ".join))
def test_no_text_does_worse_than_fail(text: str) -> None:
    failure = None
    try:
        render(text, {"x": [1, None, "b"]})
    except TemplateError as err:
        failure = err

    assert failure is None or failure.place is not None


TYPED = {
    "string": ('""', '"a b"', '"é1.5"', '"[a-"', '"%5d%"', '"2006"', '"http://[::1"', '"-7"'),
    "int": ("0", "3", "-1", "9223372036854775807", "-9223372036854775808"),
    "float64": ("0.0", "1.5", "-1e308"),
    "bool": ("true",),
    "map[string]interface {}": ("(dict)", '(dict "a" (dict "b" nil))', "nil", ".data"),
    "time.Time": ("now", '(toDate "2006" "x")'),
}
ANYTHING = (
    *TYPED["string"],
    *TYPED["int"],
    *TYPED["float64"],
    "nil",
    "true",
    "(list)",
    '(list 1 "a" nil)',
    "(dict)",
    ".data.no",
    "now",
    "3i",
)
SLOW = ("derivePassword",)


@pytest.mark.parametrize("name", sorted({*functions(), *BUILTINS} - set(SLOW)))
@settings(max_examples=25, deadline=None)
@given(st.data())
def test_no_function_does_worse_than_fail(name: str, data: st.DataObject) -> None:
    signature = read_signature({**functions(), **BUILTINS}[name])
    kinds = [*signature.fixed, *([signature.rest] * data.draw(st.integers(0, 3)) if signature.rest else [])]
    arguments = [data.draw(st.sampled_from(TYPED.get(kind, ANYTHING))) for kind in kinds]

    try:
        render(f"{{{{ {name} {' '.join(arguments)} }}}}")
    except TemplateError as err:
        failure: TemplateError | None = err
    else:
        failure = None

    assert failure is None or str(failure).startswith("motd:1: ")


@pytest.mark.parametrize("unit", ["{{ if 1 }}", "{{ (", "{{ (print ", '{{ block "b" . }}'])
def test_deep_nesting_is_an_error(unit: str) -> None:
    with pytest.raises(TemplateError):
        render(unit * 5_000)
    with pytest.raises(TemplateError):
        render("{{ " + unit.removeprefix("{{ ") * 5_000)
