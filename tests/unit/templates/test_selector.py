"""Selectors: what they mean, what they can be addressed to, and what is wrong with those that are none."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm_agent.model.errors import SelectorError, SelectorLimitError
from ccm_agent.templates.fact_texts import ITEMS_LIMIT, TEXT_LIMIT
from ccm_agent.templates.selector import (
    Selector,
    Term,
    parse_selector,
    parse_where,
)

FACTS = {
    "role": "web",
    "env": "prod",
    "rack": 7,
    "load": 2.0,
    "virtual": False,
    "empty": "",
    "nothing": None,
    "tags": ["a"],
    "mixed": ["x y", 7, 2.0, True, None, {"k": "v"}, ["z"], "w*"],
    "none": [],
    "host": {"info": {"os": "linux"}},
    "site.dc": "ams",
    "motto": "a b, c",
    "odd key": "*",
    "word": "é>",
    "memory": {"swap": {"devices": [{"name": "/swap", "usedBytes": 1, "freeBytes": 2}]}},
}


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("role=web", True), ("role==web", True), ("role = web", True), ("role=db", False),
        ("role!=db", True), ("role!=web", False), ("other!=x", True), ("other=x", False),
        ("env in (prod, stage)", True), ("env in(prod)", True), ("env notin (prod,stage)", False), ("other notin (a)", True),
        ("role", True), ("other", False), ("nothing", False), ("!other", True), ("!role", False), ("empty", True),
        ("role=web,env=prod", True), ("role=web , env=dev", False),
        ("rack=7", True), ("rack=07", False), ("load=2", True), ("virtual=false", True), ("virtual=False", False),
        ("empty=", True), ("empty=''", True), ("role=", False), ("tags=a", True), ("tags", True), ("host.info=linux", False),
        ("host.info.os=linux", True), ("host.info.os.x=linux", False), ("site.dc=ams", True),
        ('motto="a b, c"', True), ("motto='a b, c'", True), ("motto=a b", False),
        ('"odd key"=*', True), ("role=*", True), ("role=w*", True), ("word=é>", True),
        ("node=web1", True), ("node=web*", True), ("node=web?", True), ("node=db*", False), ("node!=db*", True),
        ("node in (web1,db1)", True), ("node notin (web1,db1)", False), ("node=WEB1", False),
        ("tags=b", False), ("tags!=a", False), ("tags!=b", True), ("tags in (b,a)", True), ("tags notin (b,a)", False),
        ("tags notin (b)", True), ("mixed=7", True), ("mixed=2", True), ("mixed=true", True), ("mixed=z", False),
        ("mixed=v", False),
        ("mixed='x y'", True), ("mixed=null", False), ("none", True), ("none=", False), ("none!=a", True), ("none=*", False),
        ("none notin (a)", True), ("nothing=*", False), ("other!=*", True), ("empty=*", True),
        ("role=w?b", True), ("role=w?", False), ("role!=w*", False), ("role!=d*", True), ("role in (d*,w*)", True),
        ("role notin (d*,w*)", False), ("role in (db,'w*')", False), ('role="w*"', False), ("role!='w*'", True),
        ("'odd key'='*'", True), ("role=[vw]eb", False), ("rack=?", True), ("virtual=f*", True), ("host.info=*", False),
        ("tags=?", True), ("tags!=?", False), ("mixed='w*'", True), ("mixed=w*", True), ("mixed!=q*", True),
        ("role=glob(w*)", True), ("role=glob('w*')", True), ("role!=glob(w*)", False), ("role in (glob(w*),db)", True),
        ("role=glob(web)", True), ("motto=glob('a b,*')", True), ("node=glob(web*)", True), ("role=W*", False),
    ],
)  # fmt: skip
def test_a_selector_means_a_node_or_not(text: str, means: bool) -> None:
    assert parse_selector(text).matches("web1", FACTS) is means


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("a=b", [Term(key="a", operator="=", values=("b",))]),
        ("a==b c ", [Term(key="a", operator="=", values=("b c",))]),
        ("a != b", [Term(key="a", operator="!=", values=("b",))]),
        (
            "a in (b, 'c,d'),!e",
            [Term(key="a", operator="in", values=("b", "c,d")), Term(key="e", operator="missing")],
        ),
        ("a=b=c", [Term(key="a", operator="=", values=("b=c",))]),
        ('a="\\"x\\\\"', [Term(key="a", operator="=", values=('"x\\',))]),
        ("in in (in)", [Term(key="in", operator="in", values=("in",))]),
        ("notin", [Term(key="notin", operator="exists")]),
        ("a=b*", [Term(key="a", operator="=", patterns=("b*",))]),
        ("a='b*'", [Term(key="a", operator="=", values=("b*",))]),
        ("a in (b*, c,'d?')", [Term(key="a", operator="in", values=("c", "d?"), patterns=("b*",))]),
        ("a!=glob( 'b,*' )", [Term(key="a", operator="!=", patterns=("b,*",))]),
        ("node=glob(b*)", [Term(key="node", operator="=", values=("b*",))]),
    ],
)
def test_a_selector_is_read_term_by_term(text: str, terms: list[Term]) -> None:
    assert parse_selector(text) == Selector(tuple(terms))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "selector '': at its end expected the name of a fact, or `node`"),
        ("role=web,", "selector 'role=web,': at its end expected the name of a fact, or `node`"),
        ("=web", "selector '=web': at `=web` expected the name of a fact, or `node`"),
        ("a b", "selector 'a b': at `b` expected a comma between two terms"),
        ("a in (b", "selector 'a in (b': at its end expected a closing bracket after the values"),
        ("a=(b)", "selector 'a=(b)': at `(b)` expected a comma between two terms"),
        ('a="b', "selector 'a=\"b': at `\"b` expected a closing quote"),
        ("a=glob(b", "selector 'a=glob(b': at its end expected a closing bracket after the pattern"),
        ("a=glob(b,c)", "selector 'a=glob(b,c)': at `,c)` expected a closing bracket after the pattern"),
        ("node", "selector 'node': at its end expected `=` and a name after `node`"),
        ("!node", "selector '!node': at its end expected `=` and a name after `node`"),
    ],
)
def test_an_invalid_selector_is_reported_with_its_place(text: str, said: str) -> None:
    with pytest.raises(SelectorError) as caught:
        parse_selector(text)

    assert str(caught.value) == f"{said}; write it like role=web,env!=dev or env in (a,b)"


def test_a_selector_without_end_is_refused() -> None:
    with pytest.raises(SelectorError, match="100000 is the limit"):
        parse_selector("a=" + "x" * 100_000)


@pytest.mark.parametrize(
    ("text", "keys", "nodes", "equalities"),
    [
        ("role=web,env!=dev,gpu", ("role", "env", "gpu"), (), (("role", "web"),)),
        ("node=web1,role=web", ("role",), ("web1",), (("role", "web"),)),
        ("node in (a,b)", (), ("a", "b"), ()),
        ("node=web*", (), (), ()),
        ("node in (a,b*)", (), (), ()),
        ("node!=a", (), (), ()),
        ("role in (web)", ("role",), (), ()),
        ("role=w*,env=dev", ("role", "env"), (), (("env", "dev"),)),
    ],
)
def test_subjects_of_selectors(
    text: str, keys: tuple[str, ...], nodes: tuple[str, ...], equalities: tuple[tuple[str, str], ...]
) -> None:
    selector = parse_selector(text)

    assert (selector.keys, selector.nodes, selector.equalities) == (keys, nodes, equalities)


@given(st.text(alphabet="ab=!,.() inot'\"\\*>é\n\x00", max_size=30), st.text(max_size=30))
def test_any_text_is_a_selector_or_an_error_of_ours(pieces: str, text: str) -> None:
    for one in (pieces, text):
        try:
            parse_selector(one).matches("web1", FACTS)
        except SelectorError as err:
            assert str(err)  # noqa: PT017 - whether there is an error is not what is asked


ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@given(
    st.sampled_from(["=", "!=", "in", "notin"]),
    ANY_TEXT.filter(bool),
    st.lists(ANY_TEXT | st.text("ab*?(,)[", max_size=6), min_size=1, max_size=3),
    st.integers(0, 3),
)
def test_written_values_are_read_again(operator: str, key: str, values: list[str], patterns: int) -> None:
    chosen = values if operator in ("in", "notin") else values[:1]
    first = 0 if key == "node" else min(patterns, len(chosen))
    term = Term(key=key, operator=operator, values=tuple(chosen[first:]), patterns=tuple(chosen[:first]))
    selector = Selector((term,))

    assert parse_selector(str(selector)) == selector
    assert parse_selector(selector.explicit()) == selector


OLDER_BARE = re.compile(r"[^,()'\"]*")


@given(st.text("ab*?(,)[ '", min_size=1, max_size=8), st.sampled_from(["=", "!=", "in", "notin"]))
def test_an_agent_that_does_not_know_patterns_cannot_read_an_explicit_one(
    pattern: str, operator: str
) -> None:
    text = Term(key="role", operator=operator, patterns=(pattern,)).explicit()

    # Such an agent reads a value up to one of `,()` and quotes, and then expects a comma, or the bracket of its set.
    opening = f"role {operator} (" if operator in ("in", "notin") else f"role{operator}"
    value = OLDER_BARE.match(text, len(opening))
    assert value is not None
    assert (value[0], text[value.end()]) == ("glob", "(")


def test_long_lists_and_long_texts_have_a_limit() -> None:
    facts = {"most": ["a"] * ITEMS_LIMIT, "more": ["a"] * (ITEMS_LIMIT + 1), "text": "a" * (TEXT_LIMIT + 1)}

    assert parse_selector("most=a").matches("web1", facts)
    assert not parse_selector("more=a").matches("web1", facts)
    assert not parse_selector("text=a*").matches("web1", facts)
    with pytest.raises(SelectorLimitError, match="65 patterns for facts: 64 is the limit"):
        parse_selector(",".join(["a=b*"] * 65))
    with pytest.raises(SelectorLimitError, match="at most 512 characters"):
        parse_selector("a=" + "b*" * 300)


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ('Facts.role == "web" && Facts.rack > 5', True),
        ("Facts.rack > 7", False),
        ('Node startsWith "web"', True),
        ('lookup("facts.host.info.os") == "linux"', True),
        ('lookup("facts.nope", "x") == "x"', True),
        ("Facts.nope > 5", False),
        ("Facts.nope", False),
        ('"a" in Facts.tags', True),
        ('Facts.memory.swap.devices[0].Name == "/swap"', True),
        ("Facts.memory.swap.devices[0].size == 1", False),
    ],
)
def test_an_expression_means_a_node_or_not(text: str, means: bool) -> None:
    assert parse_where(text).matches("web1", FACTS) is means


def test_an_expression_reports_why_it_fails() -> None:
    failure = parse_where('lookup("facts.nope") == "x"').failure("web1", FACTS)

    assert failure is not None
    assert "facts.nope" in str(failure)
    assert parse_where("true").failure("web1", FACTS) is None


@pytest.mark.parametrize(
    "text",
    ["", "Facts.role ==", "1 + 1", "readFile('/etc/shadow') != ''", "Environ.HOME == '/root'", "Data.x == 1"],
)
def test_an_invalid_question_about_a_node_is_refused(text: str) -> None:
    with pytest.raises(SelectorError):
        parse_where(text)
