"""
What is wrong, or probably wrong, with a manifest, without applying it and without the facts of any node.

Templates are checked for their syntax and types and then left as they are, so nothing here depends on data.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from ccm_agent.manifest.build import ResourceBuilder
from ccm_agent.manifest.document import ManifestDocument, Path, manifest_of, top_level_warnings
from ccm_agent.manifest.expressions import has_markers, holds_markers
from ccm_agent.manifest.properties import make_properties
from ccm_agent.manifest.tinycm.detect import is_tinycm
from ccm_agent.model import codec
from ccm_agent.model.errors import CcmError, ExpressionError, InputError, Place
from ccm_agent.model.gathered import unknown_fields
from ccm_agent.model.resource import parse_reference
from ccm_agent.resources.catalog import Catalog
from ccm_agent.resources.contract import AnyType
from ccm_agent.resources.converge import ResolvedResource

ERROR, WARNING = "error", "warning"


class Finding(Struct, frozen=True, kw_only=True):
    """
    Something to mend.

    Attributes:
        level: "error": `ccm apply` would refuse it somewhere; "warning": it is allowed, and hardly meant.
        place: Where.
        message: What, why, what to do.
        rule: A word for the kind of finding, such as "syntax" or "strict-ccm".
    """

    level: str
    message: str
    rule: str
    place: Place = Place()

    def __str__(self) -> str:
        return (
            f"{self.place}: {self.level}: {self.message}"
            if str(self.place)
            else f"{self.level}: {self.message}"
        )


def lint(document: ManifestDocument, catalog: Catalog, *, strict_ccm: bool = False) -> list[Finding]:
    """
    Findings in a manifest, in the order of its lines. Blocking.

    Args:
        document: The manifest.
        catalog: The types it may use.
        strict_ccm: Find what Choria CCM itself would not understand, too.
    """
    if is_tinycm(document.name, document.text):
        return _lint_tinycm(document, strict_ccm)
    linter = _Linter(document, catalog, strict_ccm)
    try:
        manifest, root = manifest_of(document)
    except CcmError as err:
        return [_finding(err, "syntax")]
    for place, sentence in top_level_warnings(root, document):
        linter.add(WARNING, "unknown-key", sentence, place)
    linter.hiera(root)
    section = manifest.ccm
    for field in ("pre_message", "post_message"):
        linter.template(getattr(section, field), ("ccm", field))
    if isinstance(section.resources, list) and section.resources:
        linter.resources(section.resources)
    elif not section.resources_jet_file:
        linter.add(
            ERROR,
            "no-resources",
            "the manifest holds no resources: add a list to `ccm.resources`",
            codec.locate(document.text, ("ccm", "resources"), document.name),
        )
    return sorted(linter.findings, key=lambda one: (one.place.line, one.place.column))


def _lint_tinycm(document: ManifestDocument, strict_ccm: bool) -> list[Finding]:
    from ccm_agent.manifest.tinycm.definitions import read_definitions

    try:
        read_definitions(document, lambda: "any")
    except CcmError as err:
        return [_finding(err, "syntax")]
    if not strict_ccm:
        return []
    message = "this is a manifest of TinyCM, which Choria CCM does not read"
    return [Finding(level=ERROR, message=message, rule="strict-ccm", place=Place(document.name, 1))]


def _finding(err: CcmError, rule: str) -> Finding:
    return Finding(level=ERROR, message=err.message, rule=rule, place=err.place or Place())


class _Linter:
    def __init__(self, document: ManifestDocument, catalog: Catalog, strict_ccm: bool) -> None:
        self.findings: list[Finding] = []
        self._document = document
        self._strict = strict_ccm
        self._builder = _Unresolved(catalog, document)
        self._templated: set[str] = set()
        self._known: set[tuple[str, str]] = set()
        self._has_children = False

    def add(self, level: str, rule: str, message: str, place: Place) -> None:
        self.findings.append(Finding(level=level, rule=rule, message=message, place=place))

    def place(self, path: Path) -> Place:
        return codec.locate(self._document.text, path, self._document.name)

    def hiera(self, root: Mapping[str, Any]) -> None:
        """The document's own data: comments that look like rules, and the syntax of its templates."""
        from ccm_agent.hiera.rules import read_rules

        if "#" in self._document.text:
            _, warnings = read_rules(self._document.text, self._document.name)
            for sentence in warnings:
                self.add(WARNING, "annotation", sentence, Place())
        hierarchy = root.get("hierarchy")
        if self._strict and isinstance(hierarchy, dict) and "secret" in hierarchy:
            self._ours("`hierarchy` of Choria CCM has no `secret`", ("hierarchy", "secret"))
        self._precedence(root)
        for key in ("data", "hierarchy", "overrides"):
            self.template(root.get(key), (key,), names=("Facts",), functions=frozenset({"lookup"}))

    def _precedence(self, root: Mapping[str, Any]) -> None:
        """One warning for each entry of the order that is probably in the wrong place."""
        from ccm_agent.hiera.precedence import reversals

        first: dict[int, str] = {}
        for reversal in reversals(root):
            first.setdefault(reversal.place, str(reversal))
        for place, sentence in first.items():
            self.add(WARNING, "order", sentence, self.place(("hierarchy", "order", place)))

    def resources(self, raw: list[Any]) -> None:
        everywhere = self._all_names(raw)
        for number, entry in enumerate(raw):
            try:
                for kind, properties, path in self._builder.instances(entry, ("ccm", "resources", number)):
                    self._resource(kind, properties, path, everywhere)
            except InputError as err:
                self.findings.append(_finding(err, "form"))

    def _resource(
        self, kind: AnyType, raw: dict[str, Any], path: Path, everywhere: set[tuple[str, str]]
    ) -> None:
        rules = kind.rules
        for key, value in raw.items():
            written = rules.aliases.get(key, key)
            if written not in rules.untemplated:
                self.template(value, (*path, key))
        self._control(raw.get("control"), path)
        self._strictness(kind, raw, path)
        if isinstance(ensure := raw.get("ensure"), (int, float)) and not isinstance(ensure, bool):
            message = f"`ensure` without quotes is a number, and reads as {codec.encode_yaml(ensure).strip()}; put it in quotes"
            self.add(WARNING, "unquoted", message, self.place((*path, "ensure")))
        try:
            declared = self._builder.declare(kind, raw, path)
        except InputError as err:
            self.findings.append(_finding(err, "property"))
            return
        self._references(declared, everywhere)
        self._remember(declared)

    def _control(self, control: Any, path: Path) -> None:
        if not isinstance(control, dict):
            return
        for key in ("if", "unless"):
            if isinstance(text := control.get(key), str) and text:
                self._expression(text, (*path, "control", key), is_condition=True)

    def _strictness(self, kind: AnyType, raw: dict[str, Any], path: Path) -> None:
        if not self._strict:
            return
        if kind.is_extension:
            self._ours(f"Choria CCM has no type `{kind.name}`", path)
            return
        rules = kind.rules
        for key, value in raw.items():
            if key in rules.aliases:
                self._ours(f"`{key}` is our spelling of `{rules.aliases[key]}`", (*path, key))
            elif key in rules.extensions:
                self._ours(f"`{kind.name}` of Choria CCM has no `{key}`", (*path, key))
            elif key == "require" and holds_markers(value):
                self._ours("Choria CCM does not render expressions in `require`", (*path, key))
            elif isinstance(value, str) and value in rules.extension_values.get(key, ()):
                self._ours(f"`{kind.name}` of Choria CCM does not know `{key}: {value}`", (*path, key))
        for key, lack in kind.find_extensions(raw) if kind.find_extensions is not None else ():
            self._ours(f"`{kind.name}` of Choria CCM {lack}", (*path, key) if key in raw else path)

    def _ours(self, message: str, path: Path) -> None:
        self.add(ERROR, "strict-ccm", f"{message}: it works here alone", self.place(path))

    def _references(self, declared: ResolvedResource, everywhere: set[tuple[str, str]]) -> None:
        for field in ("require", "subscribe"):
            for number, text in enumerate(getattr(declared.wanted, field, ())):
                if why := self._why_not_earlier(text, everywhere):
                    message = f"{declared.reference}: `{text}`, which it names under `{field}`, {why}"
                    self.add(ERROR, "reference", message, self.place((*declared.path, field, number)))

    def _why_not_earlier(self, text: str, everywhere: set[tuple[str, str]]) -> str:
        """Why a reference leads to nothing that is declared before it; "" where it does, or where only a node can tell."""
        found = parse_reference(text)
        if found is None or self._has_children or (found.type, found.name) in self._known:
            return ""
        if (found.type, found.name) in everywhere:
            # a literal name may be what an earlier template gives; the same template gives the same name
            is_certain = has_markers(text) or found.type not in self._templated
            return "is declared further down: move it up" if is_certain else ""
        return "" if has_markers(text) or found.type in self._templated else "is declared nowhere"

    def _remember(self, declared: ResolvedResource) -> None:
        name, alias = declared.wanted.name, declared.wanted.alias
        self._known |= {(declared.kind.name, one) for one in (name, alias) if one}
        if has_markers(name) or has_markers(alias):
            self._templated.add(declared.kind.name)
        self._has_children = self._has_children or declared.kind.contains_manifest

    def _all_names(self, raw: list[Any]) -> set[tuple[str, str]]:
        names = set()
        for number, entry in enumerate(raw):
            try:
                for kind, properties, _ in self._builder.instances(entry, ("ccm", "resources", number)):
                    names |= {(kind.name, str(properties.get(key))) for key in ("name", "alias")}
            except InputError:
                continue  # it is found again, and told, when its turn comes
        return names

    def template(
        self,
        value: Any,
        path: Path,
        names: tuple[str, ...] = ("Facts", "Data", "Environ"),
        functions: frozenset[str] | None = None,
    ) -> None:
        """Every expression in a value parses, and its types go together."""
        if isinstance(value, dict):
            for key, one in value.items():
                self.template(one, (*path, key), names, functions)
        elif isinstance(value, list):
            for number, one in enumerate(value):
                self.template(one, (*path, number), names, functions)
        elif isinstance(value, str) and has_markers(value):
            from ccm_agent.templates.scan import find_spans

            for span in find_spans(value):
                self._expression(span.expression, path, names=names, functions=functions)

    def _expression(
        self,
        text: str,
        path: Path,
        names: tuple[str, ...] = ("Facts", "Data", "Environ"),
        functions: frozenset[str] | None = None,
        *,
        is_condition: bool = False,
    ) -> None:
        from ccm_agent.templates.env import Environment
        from ccm_agent.templates.expr.program import ExpressionNames, compile_expression

        known = {"Facts": "map", "Data": "map", "Environ": "text map"}
        callable_here = frozenset(Environment().functions) if functions is None else functions
        try:
            compile_expression(
                text,
                ExpressionNames({name: known[name] for name in names}, callable_here),
                is_condition=is_condition,
            )
        except ExpressionError as err:
            self.add(ERROR, "expression", err.message, self.place(path))
        for sentence in unknown_fields(text):
            self.add(WARNING, "fact", f"{sentence} (unless a custom fact adds it)", self.place(path))


class _Unresolved(ResourceBuilder):
    """Makes resources of properties whose templates stay as they are, and checks what does not depend on them."""

    def __init__(self, catalog: Catalog, document: ManifestDocument) -> None:
        super().__init__(catalog, _AsWritten(), document.text, document.name)

    def declare(self, kind: AnyType, raw: dict[str, Any], path: Path, index: int = 0) -> ResolvedResource:
        rules = kind.rules
        now = {key: value for key, value in raw.items() if rules.aliases.get(key, key) not in rules.deferred}
        if not holds_markers(now):
            return super().declare(kind, raw, path, index)
        try:
            wanted = make_properties(kind, raw, self._source, self._text, path)
        except InputError as err:
            self._replace(err, f"{kind.name}#{raw.get('name') or '?'}", path)
        return ResolvedResource(kind=kind, wanted=wanted, index=index, path=path)


class _AsWritten:
    """Expressions that are left alone."""

    def text(self, template: str) -> str:
        return template

    def typed(self, template: str) -> Any:
        return template

    def holds(self, expression: str) -> bool:
        return True

    def jet_file(self, name: str) -> str:
        return ""

    @property
    def environment(self) -> Any:
        return None
