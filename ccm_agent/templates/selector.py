"""
Select nodes: selectors, and whole expressions beside them.

A selector is a list of terms, all of which must hold, written as Kubernetes writes selectors of labels:

    role=web,env!=dev        equal, not equal
    env in (prod,stage)      one of them; `notin` is none of them
    gpu,!virtual             the fact is there; it is not
    node=web*                the node's name, in which `*` and `?` are wildcards as in a shell

A key is a fact's dotted path. Values are compared as the text that a fact is routed by; one that holds a comma, a quote,
brackets or outer space is written in quotes. Controller and agents read selectors here, so both mean the same nodes.
"""

from __future__ import annotations

import re
from fnmatch import translate
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ccm_agent.model.errors import ExpressionError, ExpressionLimitError, SelectorError, SelectorLimitError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ccm_agent.templates.expr.program import Program

NODE = "node"
"""The key that is no fact but the node's name."""

LENGTH_LIMIT = 100_000
"""The longest selector; one that names a few thousand nodes is shorter."""

PATTERN_LIMIT = 512
"""Characters of a pattern of node names, which are shorter."""

WHERE_LENGTH_LIMIT = 16 * 1024
"""Characters of an expression that selects nodes."""

WHERE_STEPS = 100_000
WHERE_BYTES = 8 * 1024 * 1024
WHERE_CPU_S = 0.05
"""
What an expression may use on one node. Every operator who may look at the fleet can send one to every node, so it is far less
than a manifest's expressions may use.
"""

_EQUAL, _UNEQUAL, _IN, _NOT_IN, _EXISTS, _MISSING = "=", "!=", "in", "notin", "exists", "missing"

_KEY = re.compile(r"[^\s,=!()'\"]+")
_OPERATOR = re.compile(r"\s*(==|=|!=)\s*")
_SET = re.compile(r"\s+(in|notin)\s*\(")
_QUOTED = re.compile(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"")
_BARE = re.compile(r"[^,()'\"]*")
_ESCAPED = re.compile(r"\\(.)")
_NOT_BARE = re.compile(r"[,()'\"]|^\s|\s$|^$")
_GLOB = re.compile(r"[*?\[]")


class Term(Struct, frozen=True, kw_only=True):
    """
    One condition of a selector.

    Attributes:
        key: A fact's dotted path, or NODE.
        operator: `=`, `!=`, `in`, `notin`, `exists` or `missing`.
        values: What it is compared with, as text; none for the last two.
    """

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, node: str, facts: Mapping[str, Any]) -> bool:
        """It holds for a node. A fact that is not there is unequal to everything."""
        if self.key == NODE:
            is_one = any(_names(pattern, node) for pattern in self.values)
            return is_one is (self.operator in (_EQUAL, _IN))
        value = fact_at(facts, self.key)
        if self.operator in (_EXISTS, _MISSING):
            return (value is not None) is (self.operator == _EXISTS)
        text = comparable(value)
        return (text is not None and text in self.values) is (self.operator in (_EQUAL, _IN))

    def __str__(self) -> str:
        """As it is written, so that it can be read again."""
        key = self.key if _KEY.fullmatch(self.key) else _quoted(self.key)
        if self.operator in (_EXISTS, _MISSING):
            return f"!{key}" if self.operator == _MISSING else key
        values = [_quoted(value) if _NOT_BARE.search(value) else value for value in self.values]
        if self.operator in (_IN, _NOT_IN):
            return f"{key} {self.operator} ({','.join(values)})"
        return f"{key}{self.operator}{values[0]}"


class Selector(Struct, frozen=True):
    """A list of terms that must all hold."""

    terms: tuple[Term, ...]

    def matches(self, node: str, facts: Mapping[str, Any]) -> bool:
        """It means a node with these facts."""
        return all(term.matches(node, facts) for term in self.terms)

    @property
    def keys(self) -> tuple[str, ...]:
        """Facts that it asks about, in the order written."""
        return tuple(dict.fromkeys(term.key for term in self.terms if term.key != NODE))

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that it names one by one, and that alone it can mean; () when it does not."""
        for term in self.terms:
            is_list = term.key == NODE and term.operator in (_EQUAL, _IN)
            if is_list and not any(_GLOB.search(value) for value in term.values):
                return term.values
        return ()

    @property
    def equalities(self) -> tuple[tuple[str, str], ...]:
        """Facts that must have one value: what a request can be addressed to."""
        return tuple(
            (term.key, term.values[0]) for term in self.terms if term.key != NODE and term.operator == _EQUAL
        )

    def __str__(self) -> str:
        """As it is written."""
        return ",".join(map(str, self.terms))


class Where:
    """
    An expression that must be true; it sees `Facts`, `Node` and `lookup`, and nothing of the host that it runs on.

    Attributes:
        text: The expression.
    """

    def __init__(self, text: str, program: Program) -> None:
        self.text = text
        self._program = program

    def matches(self, node: str, facts: Mapping[str, Any]) -> bool:
        """
        It is true for a node with these facts; where it fails, for want of a fact perhaps, it is not.

        Blocking, up to WHERE_CPU_S: on an event loop it belongs into a thread.

        Raises:
            SelectorLimitError: It takes more steps, time or memory than it may.
        """
        try:
            return self._run(node, facts)
        except ExpressionLimitError as err:
            raise SelectorLimitError(f"the expression of `where` is too costly: {err.message}") from err
        except ExpressionError:
            return False

    def failure(self, node: str, facts: Mapping[str, Any]) -> ExpressionError | None:
        """Why it cannot be said for a node; None when it can."""
        try:
            self._run(node, facts)
        except ExpressionError as err:
            return err
        return None

    def _run(self, node: str, facts: Mapping[str, Any]) -> bool:
        from ccm_agent.templates.allowance import Allowance
        from ccm_agent.templates.env import Environment

        allowance = Allowance(WHERE_STEPS, WHERE_BYTES, WHERE_CPU_S, is_timed=True)
        env = Environment(facts=dict(facts), is_restricted=True, allowance=allowance)
        variables, functions = {"Facts": env.facts, "Node": node}, {"lookup": env.functions["lookup"]}
        return bool(self._program.run(variables, functions, allowance))


def parse_selector(text: str) -> Selector:
    """
    Read a selector.

    Raises:
        SelectorError: It is none; the sentence says where and what is written there.
    """
    if len(text) > LENGTH_LIMIT:
        raise SelectorLimitError(
            f"a selector of {len(text)} characters: {LENGTH_LIMIT} is the limit; use a fact instead"
        )
    reader = _Reader(text)
    terms = [reader.term()]
    while not reader.at_end():
        reader.comma()
        terms.append(reader.term())
    return Selector(tuple(terms))


def parse_where(text: str) -> Where:
    """
    Parse an expression that selects nodes.

    Raises:
        SelectorError: It does not parse, its types do not fit, or it is no yes or no.
        SelectorLimitError: It is too long.
    """
    from ccm_agent.templates.expr.evaluation_errors import shorten
    from ccm_agent.templates.expr.program import ExpressionNames, compile_expression

    if len(text) > WHERE_LENGTH_LIMIT:
        raise SelectorLimitError(
            f"an expression of {len(text)} characters: {WHERE_LENGTH_LIMIT} is the limit; use a fact instead"
        )
    names = ExpressionNames({"Facts": "map", "Node": "text"}, frozenset({"lookup"}))
    try:
        return Where(text, compile_expression(text, names, is_condition=True))
    except ExpressionError as err:
        raise SelectorError(f"where {shorten(text)}: {err}") from err


def fact_at(facts: Mapping[str, Any], path: str) -> Any:
    """
    A fact by its dotted path, or None; a key that holds the dots itself comes first.

    Gathered facts have their JSON names only: those are what every version of agent and controller can match.
    """
    if path in facts:
        return facts[path]
    here: Any = facts
    for part in path.split("."):
        if not isinstance(here, dict) or not dict.__contains__(here, part):
            return None
        here = here[part]
    return here


def _names(pattern: str, node: str) -> bool:
    """
    A pattern means a node of this name.

    `fnmatchcase` would cache 32,768 compiled patterns from any sender; `re` caches 512.
    """
    if not _GLOB.search(pattern):
        return pattern == node
    return re.match(translate(pattern), node) is not None


def comparable(value: object) -> str | None:
    """The text that a fact is compared as; None for lists, mappings and nothing."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value) if isinstance(value, (str, int, float)) else None


class _Reader:
    """Reads terms from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._place = 0

    def at_end(self) -> bool:
        """Nothing but space is left."""
        self._skip()
        return self._place >= len(self._text)

    def comma(self) -> None:
        """The comma between two terms."""
        if not self._taken(","):
            raise self._error("a comma between two terms")

    def term(self) -> Term:
        """One term."""
        self._skip()
        is_missing = self._taken("!")
        key = self._key()
        if is_missing:
            return self._checked(Term(key=key, operator=_MISSING))
        if found := _OPERATOR.match(self._text, self._place):
            self._place = found.end()
            operator = _UNEQUAL if found[1] == "!=" else _EQUAL
            return self._checked(Term(key=key, operator=operator, values=(self._value(),)))
        if found := _SET.match(self._text, self._place):
            self._place = found.end()
            return self._checked(Term(key=key, operator=found[1], values=self._values()))
        return self._checked(Term(key=key, operator=_EXISTS))

    def _values(self) -> tuple[str, ...]:
        values = [self._value()]
        while self._taken(","):
            values.append(self._value())
        if not self._taken(")"):
            raise self._error("a closing bracket after the values")
        return tuple(values)

    def _key(self) -> str:
        self._skip()
        if quoted := self._quoted():
            return quoted[0]
        found = _KEY.match(self._text, self._place)
        if found is None:
            raise self._error("the name of a fact, or `node`")
        self._place = found.end()
        return found[0]

    def _value(self) -> str:
        self._skip()
        if quoted := self._quoted():
            return quoted[0]
        found = _BARE.match(self._text, self._place)
        assert found is not None
        self._place = found.end()
        return found[0].strip()

    def _quoted(self) -> tuple[str] | None:
        """The text in quotes that stands here, if there are some; it may be empty."""
        found = _QUOTED.match(self._text, self._place)
        if found is None:
            if self._text[self._place : self._place + 1] in ("'", '"'):
                raise self._error("a text whose quotes are closed")
            return None
        self._place = found.end()
        inner = found[0][1:-1]
        return (inner if found[0][0] == "'" else _ESCAPED.sub(r"\1", inner),)

    def _checked(self, term: Term) -> Term:
        if term.key == NODE and term.operator in (_EXISTS, _MISSING):
            raise self._error("`=` and a name after `node`")
        if term.key == NODE and any(len(value) > PATTERN_LIMIT for value in term.values):
            raise SelectorLimitError(f"a name or pattern of nodes has at most {PATTERN_LIMIT} characters")
        return term

    def _taken(self, word: str) -> bool:
        self._skip()
        if not self._text.startswith(word, self._place):
            return False
        self._place += len(word)
        return True

    def _skip(self) -> None:
        while self._text[self._place : self._place + 1].isspace():
            self._place += 1

    def _error(self, wanted: str) -> SelectorError:
        rest = self._text[self._place : self._place + 20]
        where = f"at `{rest}`" if rest else "at its end"
        return SelectorError(
            f"selector {self._text[:200]!r}: {where} expected {wanted}; "
            "write it like role=web,env!=dev or env in (a,b)"
        )


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
