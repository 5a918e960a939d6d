"""
Which functions of `ccmctl` can reach which others, as mypy resolves the names in them.

A mention counts as a call, a class counts as all of its methods that Python itself calls, and a method of a protocol as that
method of each class that has all members of the protocol. What a function within another one does counts for the outer one. A
call through a field that holds a function, or by a computed name, is not found.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from mypy import build, nodes, types
from mypy.find_sources import create_source_list
from mypy.options import Options

PACKAGES = ("ccm_agent", "ccm_ctl")


class CallGraph:
    """
    Functions, methods, classes and variables of modules by their full names, and what mentions them.

    Attributes:
        names: All of them.
    """

    def __init__(self) -> None:
        options = Options()
        options.incremental, options.preserve_asts, options.export_types = False, True, True
        options.follow_imports, options.ignore_errors = "silent", True
        built = build.build(create_source_list(["ccm_ctl"], options), options)
        trees = [tree for name, tree in built.files.items() if name.split(".")[0] in PACKAGES]
        self.names: set[str] = set()
        self._types = built.types
        self._classes = [
            one.node
            for tree in trees
            for one in tree.names.values()
            if isinstance(one.node, nodes.TypeInfo) and one.node.module_name == tree.fullname
        ]
        self._mentions: dict[str, set[str]] = defaultdict(set)
        for tree in trees:
            for name, part in _parts(tree.fullname, tree.defs):
                self.names.add(name)
                for one in _references(part):
                    for mentioned in self._resolve(one):
                        self._mentions[mentioned].add(name)

    def reaching(self, sinks: Iterable[str], *, but: Iterable[str] = ()) -> set[str]:
        """What can reach one of these other than through `but`, and these."""
        found, left = {*sinks}, [*sinks]
        while left:
            new = self._mentions[left.pop()] - found - {*but}
            found |= new
            left += new
        return found

    def _resolve(self, one: nodes.RefExpr) -> Iterator[str]:
        if one.fullname:
            yield one.fullname
        elif isinstance(one, nodes.MemberExpr):
            for info in _classes_of(self._types.get(one.expr)):
                for owner in self._owners(info, one.name):
                    yield f"{owner.fullname}.{one.name}"

    def _owners(self, info: nodes.TypeInfo, name: str) -> Iterator[nodes.TypeInfo]:
        """The classes whose method may run."""
        members = {*info.protocol_members} if info.is_protocol else set()
        for other in self._classes:
            if info in other.mro or (members and all(other.get(member) for member in members)):
                yield from (owner for owner in other.mro if name in owner.names)


def _parts(module: str, statements: Iterable[nodes.Node]) -> Iterator[tuple[str, nodes.Node]]:
    """What a module or class defines: functions, methods, and values of variables."""
    for one in statements:
        if isinstance(one, nodes.OverloadedFuncDef):
            yield from _parts(module, one.items)
        elif isinstance(one, nodes.Decorator):
            yield one.func.fullname, one
        elif isinstance(one, nodes.FuncDef):
            yield one.fullname, one
        elif isinstance(one, nodes.ClassDef):
            for name, part in _parts(one.fullname, one.defs.body):
                yield name, part
                if name.endswith("__"):  # it runs when an object is made, entered, called, …
                    yield one.fullname, part
        elif isinstance(one, nodes.AssignmentStmt):
            for target in one.lvalues:
                if isinstance(target, nodes.NameExpr):
                    yield f"{module}.{target.name}", one.rvalue


def _references(part: nodes.Node) -> Iterator[nodes.RefExpr]:
    """The names and attributes below a node. Visitors of mypy cannot be extended, because it is compiled."""
    left: list[object] = [part]
    seen = set()
    while left:
        node = left.pop()
        if isinstance(node, list | tuple):
            left += node
        elif isinstance(node, nodes.Node) and not isinstance(node, _ELSEWHERE) and id(node) not in seen:
            seen.add(id(node))
            if isinstance(node, nodes.RefExpr):
                yield node
            names = {name for kind in type(node).__mro__ for name in getattr(kind, "__mypyc_attrs__", ())}
            left += [getattr(node, name, None) for name in names - _LINKS]


_ELSEWHERE = (nodes.TypeInfo, nodes.Var, nodes.MypyFile)
_LINKS = {"node", "analyzed", "definition", "original_def", "def_var"}
"""Attributes that lead to what is defined elsewhere."""


def _classes_of(of: types.Type | None) -> Iterator[nodes.TypeInfo]:
    """The classes that a value may have."""
    found = types.get_proper_type(of)
    if isinstance(found, types.UnionType):
        for item in found.items:
            yield from _classes_of(item)
    elif isinstance(found, types.TypeVarType):
        yield from _classes_of(found.upper_bound)
    elif isinstance(found, types.TypeType):
        yield from _classes_of(found.item)
    elif isinstance(found, types.FunctionLike) and found.is_type_obj():
        yield found.type_object()
    elif isinstance(found, types.TupleType):
        yield found.partial_fallback.type
    elif isinstance(found, types.Instance):
        yield found.type
