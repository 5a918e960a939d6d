"""
Select nodes by selectors and by expressions.

A selector is a list of terms in the syntax of Kubernetes label selectors. All terms must match:

    role=web,env!=dev        equal, not equal
    env in (prod,stage)      one of the values; `notin`: none of them
    gpu,!virtual             the fact exists; it does not exist
    role=web*,node=web*      `*` and `?` are wildcards as in a shell; in quotes they are literal characters of a fact's value
    tags=a                   a list fact matches if any item matches
    @web                     a saved selector, which the controller expands before it sends a request

A key is a fact's dotted path. Values are compared as text, in the same form as in routing subjects. A value
that contains a comma, a quote, brackets or surrounding white space is written in quotes. Controller and agents
both use this module, so they select the same nodes.

Older agents treat a wildcard in a fact's value as a literal character. `Selector.explicit` therefore writes
`role=glob(web*)`, which they cannot parse and therefore refuse (ADR 46).
"""

from __future__ import annotations

import re
from fnmatch import translate
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ccm_agent.model.errors import ExpressionError, ExpressionLimitError, SelectorError, SelectorLimitError
from ccm_agent.templates.fact_texts import FactTexts, fits_pattern

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ccm_agent.templates.expr.program import Program

NODE = "node"
"""The key for the node's name. Any other key is a fact."""

LENGTH_LIMIT = 100_000
"""The maximum length of a selector, which is sufficient for the names of a few thousand nodes."""

PATTERN_LIMIT = 512
"""The maximum length of a pattern in characters."""

PATTERNS_LIMIT = 64
"""
The maximum number of patterns for facts in all selectors of a request. Each pattern is compared with every
item of a list.
"""

TARGETS_LIMIT = 200_000
"""The maximum total length of all selectors of a request, in characters."""

WHERE_LENGTH_LIMIT = 16 * 1024
"""Maximum length of an expression that selects nodes."""

WHERE_STEPS = 100_000
WHERE_BYTES = 8 * 1024 * 1024
WHERE_CPU_S = 0.05
"""
Limits of such an expression on one node. Every operator with read access can send an expression to every node,
so the limits are far lower than for a manifest's expressions.
"""

_EQUAL, _UNEQUAL, _IN, _NOT_IN, _EXISTS, _MISSING = "=", "!=", "in", "notin", "exists", "missing"
_GROUP = "group"

_KEY = re.compile(r"[^\s,=!()'\"]+")
_OPERATOR = re.compile(r"\s*(==|=|!=)\s*")
_SET = re.compile(r"\s+(in|notin)\s*\(")
_QUOTED = re.compile(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"")
_BARE = re.compile(r"[^,()'\"]*")
_ESCAPED = re.compile(r"\\(.)")
_NOT_BARE = re.compile(r"[,()'\"]|^\s|\s$|^$")
_NODE_GLOB = re.compile(r"[*?\[]")
_GLOB = re.compile(r"[*?]")
_GLOB_CALL = "glob("
_GROUP_NAME = re.compile(r"@([A-Za-z0-9][A-Za-z0-9_-]{0,63})(?=\s*(?:,|$))")


class Term(Struct, frozen=True, kw_only=True):
    """
    One condition of a selector.

    Attributes:
        key: A fact's dotted path, NODE, or the name of a group.
        operator: `=`, `!=`, `in`, `notin`, `exists`, `missing` or `group`.
        values: The texts to compare with; empty for the last three operators. With NODE they may be patterns.
        patterns: The patterns to compare with; only for facts.
    """

    key: str
    operator: str
    values: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()

    def matches(self, node: str, facts: Mapping[str, Any] | FactTexts) -> bool:
        """
        Whether the term matches a node. A missing fact is not equal to any value.

        Raises:
            SelectorError: The term is a group.
        """
        if self.is_group:
            raise SelectorError(f"@{self.key}: saved selectors are known to `ccmctl --targets` only")
        if self.key == NODE:
            return any(_names(pattern, node) for pattern in self.values) is self._is_positive
        facts = facts if isinstance(facts, FactTexts) else FactTexts(facts)
        if self.operator in (_EXISTS, _MISSING):
            return facts.has(self.key) is (self.operator == _EXISTS)
        texts = facts.texts(self.key)
        is_one = any(value in texts for value in self.values) or any(
            fits_pattern(pattern, text) for pattern in self.patterns for text in texts
        )
        return is_one is self._is_positive

    @property
    def is_group(self) -> bool:
        """Whether the term is a saved selector."""
        return self.operator == _GROUP

    @property
    def compares(self) -> bool:
        """Whether the term compares the value of a fact."""
        return self.key != NODE and self.operator in (_EQUAL, _UNEQUAL, _IN, _NOT_IN)

    @property
    def is_negated(self) -> bool:
        """Whether the term matches nodes without a fact or without its value."""
        return self.key != NODE and self.operator in (_UNEQUAL, _NOT_IN, _MISSING)

    @property
    def _is_positive(self) -> bool:
        return self.operator in (_EQUAL, _IN)

    def __str__(self) -> str:
        """Format the term in the syntax of `parse_selector`."""
        return self._written(is_explicit=False)

    def explicit(self) -> str:
        """Format the term for a request. Agents that do not support patterns cannot parse it."""
        return self._written(is_explicit=True)

    def _written(self, *, is_explicit: bool) -> str:
        if self.is_group:
            return f"@{self.key}"
        is_plain = _KEY.fullmatch(self.key) and not self.key.startswith("@")
        key = self.key if is_plain else _quoted(self.key)
        if self.operator in (_EXISTS, _MISSING):
            return f"!{key}" if self.operator == _MISSING else key
        wild = None if self.key == NODE else _GLOB
        values = [
            _quoted(value) if _NOT_BARE.search(value) or (wild and wild.search(value)) else value
            for value in self.values
        ]
        values += [_written_pattern(pattern, is_explicit=is_explicit) for pattern in self.patterns]
        if self.operator in (_IN, _NOT_IN):
            return f"{key} {self.operator} ({','.join(values)})"
        return f"{key}{self.operator}{values[0]}"


class Selector(Struct, frozen=True):
    """A list of terms that must all match."""

    terms: tuple[Term, ...]

    def matches(self, node: str, facts: Mapping[str, Any] | FactTexts) -> bool:
        """Whether the selector matches a node with these facts."""
        texts = facts if isinstance(facts, FactTexts) else FactTexts(facts)
        return all(term.matches(node, texts) for term in self.terms)

    @property
    def keys(self) -> tuple[str, ...]:
        """Return the facts in the terms, in written order."""
        return tuple(dict.fromkeys(term.key for term in self.terms if term.key != NODE and not term.is_group))

    @property
    def nodes(self) -> tuple[str, ...]:
        """Return the names of the nodes if the selector can match only exactly named nodes, otherwise ()."""
        for term in self.terms:
            is_list = term.key == NODE and term.operator in (_EQUAL, _IN)
            if is_list and not any(_NODE_GLOB.search(value) for value in term.values):
                return term.values
        return ()

    @property
    def equalities(self) -> tuple[tuple[str, str], ...]:
        """Return the facts that must have a single value. Requests can be addressed by these facts."""
        return tuple(
            (term.key, term.values[0])
            for term in self.terms
            if term.key != NODE and term.operator == _EQUAL and term.values
        )

    @property
    def patterns(self) -> int:
        """Return the number of patterns for facts."""
        return sum(len(term.patterns) for term in self.terms)

    def __str__(self) -> str:
        """Format the selector in the syntax of `parse_selector`."""
        return ",".join(map(str, self.terms))

    def explicit(self) -> str:
        """
        Format the selector for a request. Agents that do not support patterns cannot parse it and refuse
        the request.
        """
        return ",".join(term.explicit() for term in self.terms)


class Where:
    """
    An expression that must be true. It can use only `Facts`, `Node` and `lookup`, and cannot read from the host.

    Attributes:
        text: The expression.
    """

    def __init__(self, text: str, program: Program) -> None:
        self.text = text
        self._program = program

    def matches(self, node: str, facts: Mapping[str, Any]) -> bool:
        """
        Whether the expression is true for a node with these facts; False if it fails, for example because a fact is missing.

        Blocks up to WHERE_CPU_S: call it in a thread.

        Raises:
            SelectorLimitError: The expression exceeds the limits of steps, time or memory.
        """
        try:
            return self._run(node, facts)
        except ExpressionLimitError as err:
            raise SelectorLimitError(f"the expression of `where` is too costly: {err.message}") from err
        except ExpressionError:
            return False

    def failure(self, node: str, facts: Mapping[str, Any]) -> ExpressionError | None:
        """Return the error of the expression for a node; None if it does not fail."""
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
    Parse a selector.

    Raises:
        SelectorError: The text is not a selector; the message contains the position and the reason.
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
    selector = Selector(tuple(terms))
    _check_patterns(selector.patterns)
    return selector


def parse_targets(texts: Sequence[str]) -> list[Selector]:
    """
    Parse the selectors of a request; a node must match at least one of them.

    Raises:
        SelectorError: A text is not a selector.
        SelectorLimitError: The selectors are too long in total, or have too many patterns.
    """
    if sum(map(len, texts)) > TARGETS_LIMIT:
        raise SelectorLimitError(
            f"selectors have at most {TARGETS_LIMIT} characters together; use a fact instead"
        )
    selectors = [parse_selector(text) for text in texts]
    _check_patterns(sum(selector.patterns for selector in selectors))
    return selectors


def parse_where(text: str) -> Where:
    """
    Parse an expression that selects nodes.

    Raises:
        SelectorError: The expression does not parse, its types do not match, or it is not a boolean.
        SelectorLimitError: The expression is too long.
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


def _names(pattern: str, node: str) -> bool:
    """
    Whether a pattern matches a node's name.

    `fnmatchcase` would cache 32,768 compiled patterns from any sender; `re` caches 512.
    """
    if not _NODE_GLOB.search(pattern):
        return pattern == node
    return re.match(translate(pattern), node) is not None


def _check_patterns(count: int) -> None:
    if count > PATTERNS_LIMIT:
        raise SelectorLimitError(
            f"{count} patterns for facts: {PATTERNS_LIMIT} is the limit; use a fact instead"
        )


class _Reader:
    """Parses terms from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._place = 0

    def at_end(self) -> bool:
        """Whether only white space is left."""
        self._skip()
        return self._place >= len(self._text)

    def comma(self) -> None:
        """Consume the comma between two terms."""
        if not self._taken(","):
            raise self._error("a comma between two terms")

    def term(self) -> Term:
        """Parse one term."""
        self._skip()
        if self._text.startswith("@", self._place):
            return self._group()
        is_missing = self._taken("!")
        if is_missing and self._text.startswith("@", self._place):
            raise self._error("a fact, because a saved selector cannot be negated")
        key = self._key()
        if is_missing:
            return self._checked(Term(key=key, operator=_MISSING))
        if found := _OPERATOR.match(self._text, self._place):
            self._place = found.end()
            operator = _UNEQUAL if found[1] == "!=" else _EQUAL
            return self._compared(key, operator, [self._value(key)])
        if found := _SET.match(self._text, self._place):
            self._place = found.end()
            return self._compared(key, found[1], self._values(key))
        return self._checked(Term(key=key, operator=_EXISTS))

    def _group(self) -> Term:
        found = _GROUP_NAME.match(self._text, self._place)
        if found is None:
            raise self._error("`@` and the name of a saved selector")
        self._place = found.end()
        return Term(key=found[1], operator=_GROUP)

    def _compared(self, key: str, operator: str, found: list[tuple[str, bool]]) -> Term:
        values = tuple(text for text, is_pattern in found if not is_pattern)
        patterns = tuple(text for text, is_pattern in found if is_pattern)
        return self._checked(Term(key=key, operator=operator, values=values, patterns=patterns))

    def _values(self, key: str) -> list[tuple[str, bool]]:
        values = [self._value(key)]
        while self._taken(","):
            values.append(self._value(key))
        if not self._taken(")"):
            raise self._error("a closing bracket after the values")
        return values

    def _key(self) -> str:
        self._skip()
        if quoted := self._quoted():
            return quoted[0]
        found = _KEY.match(self._text, self._place)
        if found is None:
            raise self._error("the name of a fact, or `node`")
        self._place = found.end()
        return found[0]

    def _value(self, key: str) -> tuple[str, bool]:
        """Parse a value, and return whether it is a pattern for a fact."""
        self._skip()
        is_call = self._text.startswith(_GLOB_CALL, self._place)
        if is_call:
            self._place += len(_GLOB_CALL)
            self._skip()
        quoted = self._quoted()
        text = quoted[0] if quoted else self._bare()
        if is_call and not self._taken(")"):
            raise self._error("a closing bracket after the pattern")
        is_wild = not quoted and _GLOB.search(text) is not None
        return text, key != NODE and (is_call or is_wild)

    def _bare(self) -> str:
        found = _BARE.match(self._text, self._place)
        assert found is not None
        self._place = found.end()
        return found[0].strip()

    def _quoted(self) -> tuple[str] | None:
        """Parse a quoted text, which may be empty; None if there is none."""
        found = _QUOTED.match(self._text, self._place)
        if found is None:
            if self._text[self._place : self._place + 1] in ("'", '"'):
                raise self._error("a closing quote")
            return None
        self._place = found.end()
        inner = found[0][1:-1]
        return (inner if found[0][0] == "'" else _ESCAPED.sub(r"\1", inner),)

    def _checked(self, term: Term) -> Term:
        if term.key == NODE and term.operator in (_EXISTS, _MISSING):
            raise self._error("`=` and a name after `node`")
        if term.key == NODE and any(len(value) > PATTERN_LIMIT for value in term.values):
            raise SelectorLimitError(f"a name or pattern of nodes has at most {PATTERN_LIMIT} characters")
        if any(len(pattern) > PATTERN_LIMIT for pattern in term.patterns):
            raise SelectorLimitError(f"a pattern has at most {PATTERN_LIMIT} characters")
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


def _written_pattern(pattern: str, *, is_explicit: bool) -> str:
    is_plain = not _NOT_BARE.search(pattern)
    if is_plain and not is_explicit and _GLOB.search(pattern):
        return pattern
    return f"{_GLOB_CALL}{pattern if is_plain else _quoted(pattern)})"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
