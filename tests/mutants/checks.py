"""
The checks of the code that verifies, found in its syntax tree: what may be refused, and by which condition.

Of modules whose subject is verification, every condition counts that refuses or accepts. Of the others those do that end in a
refusal of this kind, ask whether something is `Verified`, or call a function that verifies.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

PACKAGES = ("ccm_agent", "ccm_ctl")

SUBJECTS = (
    "ccm_agent/agent/trust/authentication.py",
    "ccm_agent/agent/requests/request_handler.py::is_meant",
    "ccm_agent/agent/trust/revision_guard.py",
    "ccm_agent/agent/trust/signers_guard.py",
    "ccm_agent/bus/signatures/node_state.py",
    "ccm_agent/bus/object_descriptions.py",
    "ccm_agent/bus/objects.py::_read",
    "ccm_agent/bus/objects.py::put",
    "ccm_agent/bus/signatures/signatory.py",
    "ccm_agent/bus/signatures/signed_bucket.py",
    "ccm_agent/bus/signatures/signing.py",
    "ccm_agent/bus/signatures/snapshot.py",
    "ccm_agent/bus/signatures/timestamp.py",
    "ccm_agent/bus/signatures/trust.py",
    "ccm_agent/bus/signatures/verified.py",
    "ccm_agent/registration/entries.py",
    "ccm_agent/registration/lookup.py::_checked",
    "ccm_ctl/fleet/trust/audit_trail.py",
    "ccm_ctl/fleet/nodes/inventory.py::read_facts",
    "ccm_ctl/fleet/trust/authors.py",
    "ccm_ctl/fleet/trust/newest_signers.py",
    "ccm_ctl/fleet/trust/node_state.py",
    "ccm_ctl/fleet/rollout/handover.py",
    "ccm_ctl/fleet/rollout/judge.py",
    "ccm_ctl/fleet/rollout/lease.py",
    "ccm_ctl/fleet/rollout/orders.py",
    "ccm_ctl/fleet/runs/run_signatures.py",
    "ccm_ctl/fleet/trust/verified_reader.py",
)
"""Modules, and functions of others, whose subject is verification."""

REFUSALS = frozenset(
    {
        "SignatureError",
        "NotAuthorizedError",
        "EarlierRequestError",
        "StaleSignersError",
        "ForeignScopeError",
        "Unverified",
    }
)
"""What a refused value becomes: an error, or a value that is marked."""

PROOFS = frozenset({"Verified", "Unverified"})

VERBS = ("check_", "refuse_", "require_", "verify_")
"""How functions are called that raise when something is not as it has to be."""

GUARD, ACCEPT, CALL, PREDICATE, CHOICE, FILTER = "guard", "accept", "call", "predicate", "choice", "filter"


class Check(Struct, frozen=True, kw_only=True):
    """
    One condition, and what it is replaced by.

    Attributes:
        number: Which one, from 0.
        path: The module, below the top of the tree.
        line: Where it starts.
        function: The function that it is in, with its class; "" at the top.
        kind: `guard`, `accept`, `call`, `predicate`, `choice` or `filter`.
        text: Its source.
        becomes: The value that it gets; of a call, False: it is left out.
        span: Line and column (in bytes) of its start and of its end.
    """

    number: int
    path: str
    line: int
    function: str
    kind: str
    text: str
    becomes: bool
    span: tuple[int, int, int, int]

    @property
    def name(self) -> str:
        """The same while the code around it changes."""
        return f"{self.path}:{self.function}:{self.text}:{self.becomes}"

    def __str__(self) -> str:
        """For people."""
        changed = "left out" if self.kind == CALL else str(self.becomes)
        return f"{self.path}:{self.line} {self.function}: {self.kind} `{self.text}` -> {changed}"


def find_checks(
    top: Path, packages: tuple[str, ...] = PACKAGES, subjects: tuple[str, ...] = SUBJECTS
) -> list[Check]:
    """
    The checks of all modules of packages in a folder.

    Args:
        top: The folder.
        packages: Their names.
        subjects: Modules in which every condition counts; `MODULE::FUNCTION`: in this function.
    """
    modules = {
        str(path.relative_to(top)): path.read_text()
        for package in packages
        for path in sorted((top / package).rglob("*.py"))
    }
    of_subjects = {
        name: ast.parse(modules[name]) for name in sorted({path.partition("::")[0] for path in subjects})
    }
    verifying = {
        node.name.lstrip("_")
        for tree in of_subjects.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.lstrip("_").startswith(VERBS)
    }
    mentions = re.compile("|".join(sorted(REFUSALS | PROOFS | verifying)))
    trees = {
        path: of_subjects.get(path) or ast.parse(text)
        for path, text in modules.items()
        if path in of_subjects or mentions.search(text)
    }
    found: list[Check] = []
    for path, tree in trees.items():
        finder = _Finder(path, modules[path], verifying, subjects)
        finder.visit(tree)
        found += finder.found
    return [
        Check(number=number, **{name: getattr(one, name) for name in Check.__struct_fields__[1:]})
        for number, one in enumerate(found)
    ]


class _Finder(ast.NodeVisitor):
    """Finds the checks of one module."""

    def __init__(self, path: str, text: str, verifying: set[str], subjects: tuple[str, ...]) -> None:
        self.found: list[Check] = []
        self._path = path
        self._lines = text.encode().split(b"\n")
        self._verifying = verifying
        self._subjects = subjects
        self._places: list[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef] = []

    @property
    def _is_subject(self) -> bool:
        names = {self._path, *(f"{self._path}::{one.name}" for one in self._places)}
        return not names.isdisjoint(self._subjects)

    def visit(self, node: ast.AST) -> None:
        """Find the checks in a node, knowing the class and the function that it is in."""
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            super().visit(node)
            return
        self._places.append(node)
        for statement in node.body:
            self.visit(statement)
        self._places.pop()

    def visit_If(self, node: ast.If) -> None:
        last = node.body[-1]
        if isinstance(last, ast.Raise | ast.Continue | ast.Return) and self._counts(node.test, last):
            if _accepts(last):
                self._add(ACCEPT, node.test, True)
                self._add_operands(ACCEPT, node.test, ast.And, True)
            else:
                self._add(GUARD, node.test, False)
                self._add_operands(GUARD, node.test, ast.Or, False)
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        call = node.value.value if isinstance(node.value, ast.Await) else node.value
        if isinstance(call, ast.Call) and _name_of(call.func).lstrip("_") in self._verifying:
            self._add(CALL, node.value, False)
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        value = node.value
        is_computed = isinstance(value, ast.Compare | ast.BoolOp | ast.UnaryOp | ast.Call)
        if value is not None and is_computed and self._is_subject and _is_bool(self._places[-1]):
            self._add(PREDICATE, value, True)
            self._add(PREDICATE, value, False)
            self._add_operands(PREDICATE, value, ast.And, True)
            self._add_operands(PREDICATE, value, ast.Or, False)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        if self._is_subject or _names_in(node.body) & REFUSALS or _names_in(node.orelse) & REFUSALS:
            for branch, value in ((node.body, True), (node.orelse, False)):
                if _is_empty(branch) or _names_in(branch) & {"Verified"}:
                    self._add(CHOICE, node.test, value)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for condition in node.ifs:
            if self._is_subject or _names_in(condition) & (PROOFS | self._verifying):
                self._add(FILTER, condition, True)
        self.generic_visit(node)

    def _counts(self, test: ast.expr, last: ast.stmt) -> bool:
        if self._is_subject:
            return True
        return bool(_names_in(last) & REFUSALS or _names_in(test) & (PROOFS | self._verifying))

    def _add_operands(self, kind: str, test: ast.expr, operator: type[ast.boolop], value: bool) -> None:
        if isinstance(test, ast.BoolOp) and isinstance(test.op, operator):
            for operand in test.values:
                self._add(kind, operand, value)

    def _source(self, line: int, column: int, end_line: int, end_column: int) -> str:
        """The text of a span; columns are in bytes."""
        lines = self._lines[line - 1 : end_line]
        lines[-1] = lines[-1][:end_column]
        lines[0] = lines[0][column:]
        return b"\n".join(lines).decode()

    def _add(self, kind: str, node: ast.expr, value: bool) -> None:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        self.found.append(
            Check(
                number=len(self.found),
                path=self._path,
                line=node.lineno,
                function=".".join(one.name for one in self._places),
                kind=kind,
                text=" ".join(
                    self._source(node.lineno, node.col_offset, node.end_lineno, node.end_col_offset).split()
                ),
                becomes=value,
                span=(node.lineno, node.col_offset, node.end_lineno, node.end_col_offset),
            )
        )


def _accepts(last: ast.stmt) -> bool:
    """The statement ends a check with success."""
    if not isinstance(last, ast.Return):
        return False
    value = last.value
    if value is None or (isinstance(value, ast.Constant) and value.value in ("", True)):
        return True
    return isinstance(value, ast.Call) and _name_of(value.func) in ("Verified", "Principal")


def _is_empty(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == ""


def _is_bool(function: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return (
        not isinstance(function, ast.ClassDef)
        and isinstance(function.returns, ast.Name)
        and function.returns.id == "bool"
    )


def _name_of(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _names_in(node: ast.AST) -> set[str]:
    """The names in an expression, without the underscore of private ones."""
    found = (_name_of(one) for one in ast.walk(node) if isinstance(one, ast.Name | ast.Attribute))
    return {name.lstrip("_") for name in found}


def iterate_by_module(checks: list[Check]) -> Iterator[tuple[str, list[Check]]]:
    """Each module with its checks."""
    for path in sorted({one.path for one in checks}):
        yield path, [one for one in checks if one.path == path]
