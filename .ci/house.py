#!/usr/bin/env python3
"""
Print the size and the complexity of the program, from its source only (`make house`).

    house.py           the table
    house.py --list    also the modules, protocols and arrows for each figure
    house.py FOLDER    the table of another checkout

Tests are excluded. All imports are counted: at the top, in a function, or only for the type checker.
"""

from __future__ import annotations

import argparse
import ast
import io
import itertools
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
PACKAGES = ("ccm_agent", "ccm_ctl")
FAKES = "ccm_agent.testing"
AGENT = "ccm_agent/agent"
LAYERS = ("events", "state", "trust", "cache", "runs", "desired", "requests", "node", "process")
"""The agent's folders, from the bottom up. Modules outside these folders are above all of them."""

LARGEST_FOLDERS = 5
IGNORED_TOKENS = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING,
    tokenize.ENDMARKER,
}  # fmt: skip
DEFINITIONS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Module:
    """
    A source file.

    Attributes:
        name: Its dotted name. For `__init__.py`, the name of the package.
        folder: Its folder, from the top.
    """

    name: str
    folder: str
    text: str
    tree: ast.Module


@dataclass(frozen=True)
class Figure:
    """One row of the table, and the places that it counts."""

    title: str
    value: str
    places: tuple[str, ...] = ()


def read_modules(top: Path, folders: Sequence[str] = PACKAGES) -> list[Module]:
    """Return all modules below the folders (both packages by default), in order of their paths."""
    found = []
    for path in sorted(path for folder in folders for path in (top / folder).rglob("*.py")):
        parts = path.relative_to(top).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        text = path.read_text(encoding="utf-8")
        found.append(Module(name, str(path.parent.relative_to(top)), text, ast.parse(text)))
    return found


def _span(node: ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def docstring_lines(tree: ast.Module) -> set[int]:
    """Return the lines of docstrings, including those below an attribute or a constant."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, DEFINITIONS):
            for child in node.body:
                if (
                    isinstance(child, ast.Expr)
                    and isinstance(child.value, ast.Constant)
                    and isinstance(child.value.value, str)
                ):
                    lines |= set(_span(child))
    return lines


def import_lines(tree: ast.Module) -> set[int]:
    """Return the lines of import statements."""
    return {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for line in _span(node)
    }


def code_lines(module: Module) -> int:
    """Count the lines with code. Blank lines, comments, docstrings and imports are excluded."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        if token.type not in IGNORED_TOKENS:
            lines |= set(range(token.start[0], token.end[0] + 1))
    return len(lines - docstring_lines(module.tree) - import_lines(module.tree))


def imports_in_functions(tree: ast.Module) -> int:
    """Count the import statements in functions."""
    return len({
        child
        for node in ast.walk(tree)
        if isinstance(node, FUNCTIONS)
        for child in ast.walk(node)
        if isinstance(child, ast.Import | ast.ImportFrom)
    })  # fmt: skip


def import_graph(modules: list[Module]) -> dict[str, set[str]]:
    """Return each module's name with our modules that it imports anywhere."""
    names = {module.name for module in modules}
    graph: dict[str, set[str]] = {}
    for module in modules:
        found: set[str] = set()
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                members = {f"{node.module}.{alias.name}" for alias in node.names}
                found |= members & names
                if members - names:
                    found.add(node.module or "")
        graph[module.name] = (found & names) - {module.name}
    return graph


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Return groups of modules that all import each other, directly or indirectly, the smallest first."""
    below = {name: reachable(graph, name) for name in graph}
    groups: set[frozenset[str]] = set()
    for name in graph:
        if name in below[name]:
            groups.add(frozenset(other for other in below[name] if name in below[other]))
    return sorted((sorted(group) for group in groups), key=lambda group: (len(group), group))


def reachable(graph: Mapping[str, set[str]], name: str) -> set[str]:
    """Return the modules that a module imports, directly or indirectly."""
    found: set[str] = set()
    pending = [name]
    while pending:
        for other in graph[pending.pop()] - found:
            found.add(other)
            pending.append(other)
    return found


def arrows(modules: list[Module], graph: Mapping[str, set[str]]) -> dict[tuple[str, str], list[str]]:
    """Return imports between folders and top-level modules of the agent: from and to, with the import statements."""
    room = AGENT.replace("/", ".") + "."
    folders = {
        module.name: module.name.removeprefix(room).split(".")[0]
        for module in modules
        if module.name.startswith(room)
    }
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, folder in folders.items():
        for other in sorted(graph[name] & folders.keys()):
            if folders[other] != folder:
                found[folder, folders[other]].append(f"{name} -> {other}")
    return found


def is_upward(lower: str, upper: str) -> bool:
    """Whether a folder imports one that is not below it. A folder without a layer is above all."""
    floors = {folder: floor for floor, folder in enumerate(LAYERS)}
    return floors.get(lower, len(LAYERS)) < floors.get(upper, len(LAYERS))


def members(node: ast.ClassDef) -> set[str]:
    """Return the methods and attributes that a class declares or its constructor sets."""
    found: set[str] = set()
    for child in node.body:
        if isinstance(child, FUNCTIONS):
            found.add(child.name)
        elif isinstance(child, ast.AnnAssign) and isinstance(child.target, ast.Name):
            found.add(child.target.id)
        elif isinstance(child, ast.Assign):
            found |= {target.id for target in child.targets if isinstance(target, ast.Name)}
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store):
            found.add(part.attr)
    return found


def base_names(node: ast.ClassDef) -> list[str]:
    """Return the last part of each base's name."""
    return [ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases]


def protocols(modules: list[Module], tests: list[Module]) -> dict[str, tuple[list[str], list[str]]]:
    """Return, for each protocol, the classes with all its members, and the fakes in the tests and in `testing`."""
    classes: dict[str, tuple[str, ast.ClassDef]] = {}
    for module in (*modules, *tests):
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                classes[f"{module.name}.{node.name}"] = (module.name, node)
    by_name: dict[str, list[str]] = defaultdict(list)
    for full in classes:
        by_name[full.rsplit(".", 1)[1]].append(full)

    def all_members(full: str, seen: frozenset[str] = frozenset()) -> set[str]:
        _module, node = classes[full]
        found = members(node)
        for base in base_names(node):
            for other in by_name.get(base, []):
                if other not in seen:
                    found |= all_members(other, seen | {full})
        return found

    own = {module.name for module in modules if not module.name.startswith(FAKES)}
    is_protocol = {full: "Protocol" in base_names(node) for full, (_, node) in classes.items()}
    wanted = {
        full: all_members(full) for full, found in is_protocol.items() if found and classes[full][0] in own
    }
    offered = {full: all_members(full) for full, found in is_protocol.items() if not found}
    kinds = {}
    for full, names in wanted.items():
        having = [other for other, its_members in offered.items() if names <= its_members]
        if "__call__" not in names:
            kinds[full] = (
                [other for other in having if classes[other][0] in own],
                [other for other in having if classes[other][0] not in own],
            )
    return kinds


def untyped_options(modules: list[Module]) -> dict[str, tuple[int, int]]:
    """
    Return the parameters that contain a command's options as a dictionary, and the lookups in them by string, by module.

    The search begins with `**name` of a command, whatever its name, and follows arguments and assignments.
    """
    functions = [
        (module.name, node)
        for module in modules
        if module.folder.startswith(("ccm_ctl", "ccm_agent/cli", "ccm_agent/clikit"))
        for node in ast.walk(module.tree)
        if isinstance(node, FUNCTIONS)
    ]
    named: dict[str, list[int]] = defaultdict(list)
    for place, (_, node) in enumerate(functions):
        named[node.name].append(place)
    held: dict[int, set[str]] = defaultdict(set)
    for place, (_, node) in enumerate(functions):
        if node.args.kwarg and any(map(_makes_command, node.decorator_list)):
            held[place].add(node.args.kwarg.arg)
    waiting = list(held)
    while waiting:
        place = waiting.pop()
        for callee, argument in _passed_on(functions[place][1], held[place]):
            for other in named[callee]:
                name = _parameter(functions[other][1], argument)
                if name and name not in held[other]:
                    held[other].add(name)
                    waiting.append(other)
    counts: dict[str, tuple[int, int]] = {}
    for place, names in held.items():
        module, node = functions[place]
        parameters, reads = counts.get(module, (0, 0))
        own = {argument.arg for argument in _arguments(node)}
        counts[module] = (
            parameters + len(names & own),
            reads + sum(_reads(one, names) for one in ast.walk(node)),
        )
    return dict(sorted(counts.items()))


def _makes_command(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    return name in ("command", "group", "verb")


def _arguments(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.arg]:
    given = node.args
    return [*given.posonlyargs, *given.args, *given.kwonlyargs, *filter(None, [given.kwarg])]


def _passed_on(
    node: ast.FunctionDef | ast.AsyncFunctionDef, names: set[str]
) -> Iterator[tuple[str, int | str]]:
    """Return the functions that are called with one of the names, and its position or keyword. Adds assigned names to `names`."""
    for one in ast.walk(node):
        if isinstance(one, ast.Assign) and _holds(one.value, names):
            names |= {target.id for target in one.targets if isinstance(target, ast.Name)}
    for one in ast.walk(node):
        if isinstance(one, ast.Call):
            callee = one.func.attr if isinstance(one.func, ast.Attribute) else getattr(one.func, "id", "")
            arguments = [*enumerate(one.args), *((word.arg or "**", word.value) for word in one.keywords)]
            yield from ((callee, where) for where, value in arguments if _holds(value, names))


def _holds(node: ast.expr, names: set[str]) -> bool:
    """Whether an expression is one of the dictionaries, or a copy with more keys."""
    if isinstance(node, ast.Name):
        return node.id in names
    if isinstance(node, ast.BinOp):
        return _holds(node.left, names) or _holds(node.right, names)
    return isinstance(node, ast.Dict) and any(
        key is None and _holds(value, names) for key, value in zip(node.keys, node.values, strict=True)
    )


def _parameter(node: ast.FunctionDef | ast.AsyncFunctionDef, argument: int | str) -> str:
    """Return the name of an argument's parameter if it is a dictionary with untyped values, or ""."""
    by_place = [one for one in (*node.args.posonlyargs, *node.args.args) if one.arg not in ("self", "cls")]
    if argument == "**":
        return node.args.kwarg.arg if node.args.kwarg else ""
    if isinstance(argument, int):
        found = by_place[argument : argument + 1]
    else:
        found = [one for one in (*by_place, *node.args.kwonlyargs) if one.arg == argument]
    written = [(one.arg, ast.unparse(one.annotation)) for one in found if one.annotation]
    return next((name for name, kind in written if kind.endswith(("[str, Any]", "[str, object]"))), "")


def _reads(node: ast.AST, names: set[str]) -> bool:
    if isinstance(node, ast.Subscript):
        return _holds(node.value, names) and _is_text(node.slice)
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("get", "pop")
        and _holds(node.func.value, names)
        and _is_text(node.args[0])
    )


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def figures(modules: list[Module], tests: list[Module]) -> Iterator[Figure]:
    """Return the rows of the table."""
    graph = import_graph(modules)
    yield Figure("lines", f"{sum(len(module.text.splitlines()) for module in modules):,}")
    yield Figure("lines of code, without imports and docstrings", f"{sum(map(code_lines, modules)):,}")
    yield Figure("lines of docstrings", f"{sum(len(docstring_lines(module.tree)) for module in modules):,}")
    yield Figure("lines of imports", f"{sum(len(import_lines(module.tree)) for module in modules):,}")
    yield Figure("imports in functions", f"{sum(imports_in_functions(module.tree) for module in modules):,}")
    yield Figure("files with TYPE_CHECKING", str(sum("TYPE_CHECKING" in module.text for module in modules)))
    sizes = Counter(module.folder for module in modules).most_common()
    yield Figure(
        "files in the largest folders",
        " · ".join(f"{folder} {size}" for folder, size in sizes[:LARGEST_FOLDERS]),
        tuple(f"{folder} {size}" for folder, size in sizes if size > 25),
    )
    found = circles(graph)
    yield Figure(
        "circles of imports (modules in them)",
        f"{len(found)} ({sum(map(len, found))})",
        tuple(" ".join(group) for group in found),
    )
    between = arrows(modules, graph)
    upward = [arrow for arrow in between if is_upward(*arrow)]
    yield Figure(
        "upward arrows between the agent's folders",
        f"{len(upward)} of {len(between)}",
        tuple(itertools.chain.from_iterable(between[arrow] for arrow in sorted(upward))),
    )
    kinds = protocols(modules, tests)
    single = {full: (classes[0], fakes) for full, (classes, fakes) in kinds.items() if len(classes) == 1}
    without = {full: only for full, (only, fakes) in single.items() if not fakes}
    yield Figure(
        "protocols with one implementation / and without a fake",
        f"{len(single)} / {len(without)} of {len(kinds)}",
        tuple(f"{full}: {only}" for full, only in without.items()),
    )
    counts = untyped_options(modules)
    yield Figure(
        "options of commands as dict[str, Any] / reads by text key",
        f"{sum(parameters for parameters, _ in counts.values())} / {sum(reads for _, reads in counts.values())}",
        tuple(f"{name} {parameters} / {reads}" for name, (parameters, reads) in counts.items()),
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Print the size and the complexity of the program.")
    parser.add_argument("folder", nargs="?", type=Path, default=TOP, help="a checkout; this one otherwise")
    parser.add_argument("--list", action="store_true", help="also print the places behind each figure")
    given = parser.parse_args()
    rows = list(figures(read_modules(given.folder), read_modules(given.folder, ["tests"])))
    width = max(len(row.title) for row in rows)
    for row in rows:
        print(f"{row.title:{width}}  {row.value}")
        for place in row.places if given.list else ():
            print(f"  {place}")


if __name__ == "__main__":
    main()
