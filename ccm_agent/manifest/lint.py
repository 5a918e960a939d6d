"""
Find errors and probable mistakes in a manifest without applying it and without a node's facts.

Only the syntax and types of templates are checked. They are not rendered, so the findings do not depend on data.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ccm_agent.hiera.precedence import reversals
from ccm_agent.hiera.rules import read_rules
from ccm_agent.manifest.conversion import convert_all
from ccm_agent.manifest.document import (
    EMPTY,
    ManifestDocument,
    Path,
    as_written,
    hierarchy_errors,
    no_section,
    read_root,
    top_level_warnings,
)
from ccm_agent.manifest.findings import ERROR, WARNING, Finding, Report
from ccm_agent.manifest.lint_expressions import lint_templates
from ccm_agent.manifest.lint_resources import ResourceLinter
from ccm_agent.manifest.silence import without_silenced
from ccm_agent.manifest.tinycm.detect import is_tinycm
from ccm_agent.model import codec
from ccm_agent.model.errors import (
    CcmError,
    DocumentError,
    InputError,
    ManifestError,
    MisfitError,
    Place,
)
from ccm_agent.model.formats.field_rules import field_rules
from ccm_agent.model.manifest import CcmSection
from ccm_agent.resources.catalog import Catalog

_LIST = "`resources` must be a list: begin each resource with `- `"


def lint(
    document: ManifestDocument,
    catalog: Catalog | None = None,
    *,
    strict_ccm: bool = False,
    ignored: Collection[str] = (),
) -> list[Finding]:
    """
    Return the findings in a manifest, in the order of its lines. Blocking.

    Args:
        document: The manifest.
        catalog: The types that the manifest may use; None for the installed types.
        strict_ccm: Whether to report constructs that Choria CCM does not support.
        ignored: Codes of silenced rules.
    """
    report = Report(document)
    if is_tinycm(document.name, document.text):
        _lint_tinycm(document, report, strict_ccm)
    else:
        _ManifestLinter(document, report, catalog or Catalog(), strict_ccm).run()
    found = without_silenced(report.findings, document, ignored)
    return sorted(found, key=lambda one: (one.place.line, one.place.column))


def lint_request(
    type_name: str, properties: Mapping[str, Any], catalog: Catalog | None = None
) -> list[Finding]:
    """
    Return the findings in the properties of a single resource, including `name`. Blocking.

    Args:
        type_name: The type of the resource.
        properties: The properties in the form of a request.
        catalog: The known types; None for the installed types.
    """
    report = Report(None)
    catalog = catalog or Catalog()
    try:
        kind = catalog.find(type_name)
    except ManifestError as err:
        report.add(ERROR, "unknown-type", err.message)
    else:
        ResourceLinter(report, catalog).resource(kind, dict(properties), ())
    return report.findings


def _lint_tinycm(document: ManifestDocument, report: Report, strict_ccm: bool) -> None:
    from ccm_agent.manifest.tinycm.definitions import read_definitions

    try:
        read_definitions(document, lambda: "any")
    except CcmError as err:
        report.add_error(err, "form")
    if strict_ccm:
        message = "this is a TinyCM manifest, which Choria CCM cannot read"
        report.add_at(ERROR, "strict-ccm", message, Place(document.name, 1))


class _ManifestLinter:
    """Checks the sections of a document, except for the resources, which have a separate linter."""

    def __init__(
        self, document: ManifestDocument, report: Report, catalog: Catalog, strict_ccm: bool
    ) -> None:
        self._document = document
        self._report = report
        self._strict = strict_ccm
        self._resources = ResourceLinter(report, catalog, strict_ccm=strict_ccm)

    def run(self) -> None:
        try:
            root = read_root(self._document)
        except DocumentError as err:
            self._report.add_error(err, "syntax")
            return
        except InputError as err:
            self._report.add_error(err, "no-resources" if err.message == EMPTY else "form")
            return
        for place, sentence in top_level_warnings(root, self._document):
            if root.get("ccm") is not None or not sentence.startswith("unknown key `resources`"):
                self._report.add_at(WARNING, "unknown-key", sentence, place)
        self._hiera(root)
        if root.get("ccm") is None:
            self._report.add_error(no_section(root, self._document), "form")
            self._list(root.get("resources"), ("resources",))
        else:
            self._section(root)

    def _section(self, root: Mapping[str, Any]) -> None:
        written = as_written(root)["ccm"]
        if not isinstance(written, dict):
            self._report.add(ERROR, "form", "`ccm` must be a mapping with `resources`", ("ccm",))
            return
        section, mistakes = convert_all(written, lambda value: codec.convert_as(value, CcmSection))
        for mistake in mistakes:
            is_unknown = isinstance(mistake.error, MisfitError) and mistake.error.unknown_key
            rule = "unknown-key" if is_unknown else "value"
            self._report.add(ERROR, rule, mistake.error.message, ("ccm", *mistake.path))
        self._extensions(written)
        if section is None:
            return
        for field in ("pre_message", "post_message"):
            lint_templates(self._report, getattr(section, field), ("ccm", field))
        if section.resources_jet_file and section.resources is not None:
            message = "`resources` and `resources_jet_file` are mutually exclusive: remove one of them"
            self._report.add(ERROR, "form", message, ("ccm", "resources_jet_file"))
        if section.resources or not section.resources_jet_file:
            self._list(section.resources, ("ccm", "resources"))

    def _extensions(self, written: Mapping[str, Any]) -> None:
        """Report keys of the section that Choria CCM does not support."""
        if self._strict:
            for key in field_rules(CcmSection).extensions & written.keys():
                self._resources.extension(f"Choria CCM's `ccm` has no `{key}`", ("ccm", key))

    def _list(self, raw: Any, path: Path) -> None:
        """Check the resources. If the value is a mapping instead of a list, check its content as well."""
        if isinstance(raw, list) and any(raw):
            self._resources.entries([(entry, (*path, number)) for number, entry in enumerate(raw)])
        elif isinstance(raw, dict) and raw:
            self._report.add(ERROR, "form", _LIST, path)
            self._resources.entries([({key: body}, path) for key, body in raw.items()])
        elif raw is None or raw == [] or isinstance(raw, list):
            if path[0] == "ccm":
                message = "the manifest has no resources: add a list to `ccm.resources`"
                self._report.add(ERROR, "no-resources", message, path)
        else:
            self._report.add(ERROR, "form", _LIST, path)

    def _hiera(self, root: Mapping[str, Any]) -> None:
        """
        Check the document's own data: its hierarchy, comments that look like rules, and the syntax of its
        templates.
        """
        for err in hierarchy_errors(root, self._document):
            self._report.add_error(err, "unknown-key" if err.message.startswith("unknown key") else "form")
        self._annotations()
        hierarchy = root.get("hierarchy")
        if self._strict and isinstance(hierarchy, dict) and "secret" in hierarchy:
            self._resources.extension("Choria CCM's `hierarchy` has no `secret`", ("hierarchy", "secret"))
        self._precedence(root)
        for key in ("data", "hierarchy", "overrides"):
            lint_templates(
                self._report, root.get(key), (key,), names=("Facts",), functions=frozenset({"lookup"})
            )

    def _annotations(self) -> None:
        name = self._document.name
        if "#" in self._document.text:
            _, warnings = read_rules(self._document.text, name)
            for sentence in warnings:
                line, _, message = sentence.removeprefix(f"{name}:").partition(": ")
                self._report.add_at(WARNING, "annotation", message, Place(name, int(line)))

    def _precedence(self, root: Mapping[str, Any]) -> None:
        """Add one warning for each entry of the order that is probably in the wrong place."""
        first: dict[int, str] = {}
        for reversal in reversals(root):
            first.setdefault(reversal.place, str(reversal))
        for place, sentence in first.items():
            self._report.add(WARNING, "order", sentence, ("hierarchy", "order", place))
