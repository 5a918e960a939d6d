"""Checks resources without the facts and data of a node, and reports all mistakes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from ccm_agent.manifest.conversion import convert_all
from ccm_agent.manifest.document import Path, parse_path
from ccm_agent.manifest.entries import DEFAULTS, EntryReader
from ccm_agent.manifest.expressions import has_markers, holds_markers
from ccm_agent.manifest.findings import ERROR, WARNING, Report
from ccm_agent.manifest.lint_expressions import ITEM_NAMES, PLAIN_NAMES, lint_condition, lint_templates
from ccm_agent.manifest.lint_references import ReferenceChecks
from ccm_agent.manifest.properties import make_properties, read_unquoted, takes_expression
from ccm_agent.manifest.reverse_references import Key
from ccm_agent.manifest.validate import check_ensure, check_outside_manifest, common_checks, late_checks
from ccm_agent.model import codec
from ccm_agent.model.errors import InputError, ManifestError, MisfitError
from ccm_agent.model.formats.scalars import explain_unquoted
from ccm_agent.model.resource import FOR_EACH, CommonProperties
from ccm_agent.model.suggestions import nearest
from ccm_agent.resources.catalog import Catalog
from ccm_agent.resources.checks import check_each, errors_in
from ccm_agent.resources.contract import AnyType

Entry = tuple[Any, Path]
"""An entry of the list of resources, and its path."""


class ResourceLinter:
    """
    Checks the resources of one document, or of one request.

    Args:
        report: Receives the findings.
        catalog: The known types.
        strict_ccm: Whether to report constructs that Choria CCM does not support.
    """

    def __init__(self, report: Report, catalog: Catalog, *, strict_ccm: bool = False) -> None:
        self._report = report
        self._strict = strict_ccm
        self._catalog = catalog
        self._references = ReferenceChecks(catalog, Counter())
        self._declared: dict[Key, Path] = {}
        self._inherited: dict[str, Path] = {}
        self._written: dict[str, str] = {}

    def entries(self, entries: Sequence[Entry]) -> None:
        """Check all resources, in order."""
        self._references = ReferenceChecks(self._catalog, self._all_keys(entries))
        reader = _Reader(self._catalog, self._report)
        for entry, path in entries:
            for kind, properties, place in reader.read(entry, path):
                self._inherited = _inherited(entry, path, place)
                self.resource(kind, properties, place)
        self._inherited = {}

    def resource(self, kind: AnyType, raw: dict[str, Any], path: Path) -> None:
        """Check one resource: its expressions, its properties and its requirements."""
        rules = kind.rules
        names = ITEM_NAMES if FOR_EACH in raw else PLAIN_NAMES
        for key, value in raw.items():
            if rules.aliases.get(key, key) not in rules.untemplated:
                known = PLAIN_NAMES if key == FOR_EACH else names
                lint_templates(self._report, value, self._at(path, key), known)
        self._conditions(raw, path, names)
        if FOR_EACH in raw and not has_markers(str(raw.get("name"))):
            message = (
                "`for_each` gives each resource the same name: put an expression with `item` into the name"
            )
            self._report.add(ERROR, "property", message, self._at(path, FOR_EACH))
        self._strictness(kind, raw, path)
        ensure = raw.get("ensure")
        if isinstance(ensure, (int, float)) and not isinstance(ensure, bool):
            message = f"unquoted `ensure` is a number and is read as {codec.encode_yaml(ensure).strip()}; put it in quotes"
            self._report.add(WARNING, "unquoted", message, self._at(path, "ensure"))
        wanted = self._properties(kind, raw, path)
        if wanted is not None and self._report.document is not None:
            for field, number, why in self._references.declare(kind, wanted):
                self._report.add(ERROR, "reference", why, (*self._at(path, field), number))
            self._duplicate(kind, wanted, path)

    def extension(self, message: str, path: Path) -> None:
        """Report a construct that Choria CCM does not support."""
        self._report.add(ERROR, "strict-ccm", f"{message}; only ccm-fleet supports it", path)

    def _properties(self, kind: AnyType, raw: dict[str, Any], path: Path) -> CommonProperties | None:
        """Convert the properties, and report all mistakes. Return the properties that could be converted."""
        title = f"{kind.name}#{raw.get('name') or '?'}"
        rules = kind.rules
        doubtful = {
            name
            for key, value in raw.items()
            if holds_markers(value)
            if (name := rules.aliases.get(key, key)) not in rules.deferred
        }
        if "name" not in raw:
            self._report.add(ERROR, "value", f"{title}: `name` is missing", path)
            raw = {**raw, "name": "?"}
            doubtful.add("name")
        read = raw if self._report.document is None else read_unquoted(kind, raw)
        wanted, mistakes = convert_all(read, lambda values: make_properties(kind, values), rules.aliases)
        self._written = {rules.aliases[key]: key for key in raw if key in rules.aliases}
        for mistake in mistakes:
            if mistake.meant and len(mistake.path) == 1:
                self._written[mistake.meant] = str(mistake.path[0])
            first = str(mistake.path[0]) if mistake.path else ""
            doubtful.add(rules.aliases.get(first, first))
            if len(mistake.path) == 1 and _is_expression(raw.get(first)) and takes_expression(kind, first):
                continue  # its value depends on the node
            rule = _rule_of(kind, mistake.error, first)
            self._add(rule, title, mistake.error.message, path, mistake.path)
        if wanted is not None:
            self._checks(kind, wanted, title, path, doubtful, raw)
            self._unquoted(kind, wanted, title, path, raw)
        return wanted

    def _unquoted(
        self, kind: AnyType, wanted: CommonProperties, title: str, path: Path, raw: dict[str, Any]
    ) -> None:
        """
        Report unquoted numbers that are interpreted as digits: an error if the resource fails, otherwise a
        warning.
        """
        read = read_unquoted(kind, raw) if self._report.document is not None else raw
        for key in kind.rules.quoted:
            if key in raw and read[key] is not raw[key]:
                message = f"{title}: {explain_unquoted(key, raw[key])}"
                level = ERROR if _fails(kind, wanted, raw, key) else WARNING
                self._report.add(level, "unquoted", message, self._at(path, key))

    def _checks(
        self,
        kind: AnyType,
        wanted: CommonProperties,
        title: str,
        path: Path,
        doubtful: Collection[str],
        raw: dict[str, Any],
    ) -> None:
        """Check values, except those that could not be converted or that only a node can render."""
        if "ensure" not in doubtful:
            self._ensure(kind, wanted, title, path)
        checks: list[Callable[[Any], None]] = [*common_checks(kind)]
        late = kind.rules.deferred | kind.rules.untemplated
        templated = [key for key in wanted.__struct_fields__ if holds_markers(getattr(wanted, key))]
        if all(key in late for key in templated):
            in_manifest = kind.check_in_manifest if self._report.document is not None else None
            settle = kind.finalize if not templated else None
            checks += [one for one in (kind.check, in_manifest, settle) if one is not None]
        quoted = {key: value for key, value in raw.items() if key not in kind.rules.quoted}
        checks += late_checks(kind, quoted)
        if self._report.document is None:
            checks.append(check_outside_manifest)
        try:
            check_each(wanted, *checks)
        except InputError as err:
            for one in errors_in(err):
                steps = parse_path(one.place.path) if one.place is not None else ()
                if not steps or steps[0] not in doubtful:
                    self._add("property", title, one.message, path, steps)

    def _ensure(self, kind: AnyType, wanted: CommonProperties, title: str, path: Path) -> None:
        """
        Check `ensure`, and replace a misspelled value with the most similar one, because other properties
        depend on it.
        """
        try:
            check_ensure(kind, wanted)
        except InputError as err:
            self._add("ensure", title, err.message, path, ("ensure",))
            known = kind.ensure or (wanted.ensure or "present",)
            wanted.ensure = nearest(wanted.ensure, known) or known[0]

    def _add(self, rule: str, title: str, message: str, path: Path, steps: Path) -> None:
        """Add an error about a property. An error in the defaults is reported once, at the defaults."""
        if steps and steps[0] in self._written:
            steps = (self._written[str(steps[0])], *steps[1:])
        if steps and steps[0] in self._inherited:
            title = f"{DEFAULTS} of {title.partition('#')[0]}"
        self._report.add(ERROR, rule, f"{title}: {message}", self._at(path, *steps))

    def _at(self, path: Path, *steps: str | int) -> Path:
        """Return the path of a property, which may be in the defaults of its list."""
        where = self._inherited.get(str(steps[0]), path) if steps else path
        return (*where, *steps)

    def _conditions(self, raw: dict[str, Any], path: Path, names: tuple[str, ...]) -> None:
        for field, keys, known in (
            ("control", ("if", "unless"), names),
            ("retry", ("until",), (*names, "result")),
        ):
            value = raw.get(field)
            conditions = value if isinstance(value, dict) else {}
            for key in keys:
                if isinstance(text := conditions.get(key), str) and text:
                    lint_condition(self._report, text, (*self._at(path, field), key), known)

    def _strictness(self, kind: AnyType, raw: dict[str, Any], path: Path) -> None:
        if not self._strict:
            return
        if kind.is_extension:
            self.extension(f"Choria CCM has no type `{kind.name}`", path)
            return
        rules = kind.rules
        control = raw.get("control")
        for key in ("slots", "slots_wait"):
            if isinstance(control, dict) and key in control:
                self.extension(f"Choria CCM's `control` has no `{key}`", (*self._at(path, "control"), key))
        for key, value in raw.items():
            where = self._at(path, key)
            if key in rules.aliases:
                self.extension(f"Choria CCM calls `{key}` `{rules.aliases[key]}`", where)
            elif key in rules.extensions:
                self.extension(f"Choria CCM's `{kind.name}` has no `{key}`", where)
            elif key == "require" and holds_markers(value):
                self.extension("Choria CCM does not render expressions in `require`", where)
            elif isinstance(value, str) and value in rules.extension_values.get(key, ()):
                self.extension(f"Choria CCM's `{kind.name}` does not support `{key}: {value}`", where)
        for key, lack in kind.find_extensions(raw) if kind.find_extensions is not None else ():
            self.extension(f"Choria CCM's `{kind.name}` {lack}", self._at(path, key) if key in raw else path)

    def _duplicate(self, kind: AnyType, wanted: CommonProperties, path: Path) -> None:
        first = self._declared.setdefault((kind.name, wanted.name), path)
        if first is not path and wanted.name != "?" and wanted.for_each is None:
            message = (
                f"{kind.name}#{wanted.name}: declared twice, first on line {self._report.place(first).line}"
            )
            self._report.add(WARNING, "duplicate", message, path)

    def _all_keys(self, entries: Sequence[Entry]) -> Counter[Key]:
        """Count the declarations of each name and alias."""
        reader = _Reader(self._catalog, Report(self._report.document))  # the same findings are reported below
        return Counter(
            (kind.name, name)
            for entry, path in entries
            for kind, properties, _ in reader.read(entry, path)
            for name in {str(properties[key]) for key in ("name", "alias") if properties.get(key) is not None}
        )


class _Reader(EntryReader):
    """Reads entries. It reports entries that cannot be read, and continues."""

    def __init__(self, catalog: Catalog, report: Report) -> None:
        assert report.document is not None
        super().__init__(catalog, report.document.text, report.document.name)
        self._report = report

    def read(self, entry: Any, path: Path) -> Iterator[tuple[AnyType, dict[str, Any], Path]]:
        """Yield the resources of an entry without raising; see `instances`."""
        try:
            yield from self.instances(entry, path)
        except InputError as err:
            self.refuse(err)

    def refuse(self, err: InputError) -> None:
        """Report the error."""
        self._report.add_error(err, "unknown-type" if isinstance(err, ManifestError) else "form")


def _fails(kind: AnyType, wanted: CommonProperties, raw: dict[str, Any], key: str) -> bool:
    """Whether an unquoted number makes the resource fail."""
    try:
        check_each(wanted, *late_checks(kind, raw))
    except InputError as err:
        return any(
            one.place is not None and parse_path(one.place.path)[:1] == (key,) for one in errors_in(err)
        )
    return False


def _rule_of(kind: AnyType, err: InputError, field: str) -> str:
    if isinstance(err, MisfitError):
        return "unknown-property" if err.unknown_key else "value"
    return "unquoted" if kind.rules.aliases.get(field, field) in kind.rules.quoted else "property"


def _inherited(entry: Any, path: Path, place: Path) -> dict[str, Path]:
    """
    Return the properties that a resource inherits from the defaults of its list, with the path of each
    default.
    """
    if len(place) != len(path) + 3:
        return {}  # a single resource
    type_name, number, name = place[len(path) :]
    body = entry[type_name]
    own = body[number][name] or {}
    for at, item in enumerate(body):
        if isinstance(item, dict) and isinstance(item.get(DEFAULTS), dict):
            where = (*path, type_name, at, DEFAULTS)
            return {key: where for key in item[DEFAULTS] if key not in own}
    return {}


def _is_expression(value: object) -> bool:
    return isinstance(value, str) and has_markers(value)
