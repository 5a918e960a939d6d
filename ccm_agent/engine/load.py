"""
Loads a manifest: converts its text to resources that are ready to be applied.

All errors that can be detected before a change are reported here, with file, line and key.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ccm_agent.engine.secrets import Secrets
from ccm_agent.hiera.resolve import resolve_values
from ccm_agent.manifest.build import ResourceBuilder
from ccm_agent.manifest.document import (
    ManifestDocument,
    Path,
    ReadDocument,
    build_manifest,
    place_error,
    top_level_warnings,
)
from ccm_agent.manifest.expressions import Expressions, has_markers
from ccm_agent.model import codec, merge
from ccm_agent.model.data import Resolved
from ccm_agent.model.errors import DocumentError, InputError, ManifestError, Place
from ccm_agent.model.manifest import CcmSection
from ccm_agent.model.resource import parse_reference
from ccm_agent.resources.catalog import Catalog
from ccm_agent.resources.contract import ResolvedResource

if TYPE_CHECKING:
    from ccm_agent.templates.env import Environment

Key = tuple[str, str]
"""Type and name, or type and alias."""


class ResolvedManifest(Struct, kw_only=True):
    """
    A manifest that is ready to be applied.

    Attributes:
        document: The manifest's document.
        resources: Its resources, in order.
        data: The data that expressions access as `Data`.
        expressions: Renders the deferred fields later.
        fail_on_error, prune, max_prune, pre_message, post_message: The manifest's settings; messages are rendered.
        warnings: Likely mistakes, as sentences with their position.
        listed: The document that contains the list of resources: the manifest itself, or the output of a Jet template.
    """

    document: ManifestDocument
    resources: list[ResolvedResource]
    data: dict[str, Any]
    expressions: Expressions
    fail_on_error: bool = False
    prune: str = "off"
    max_prune: int = 0
    pre_message: str = ""
    post_message: str = ""
    warnings: list[str] = []
    listed: ManifestDocument | None = None

    def place(self, path: Path) -> Place:
        """Return the file and line of a resource or of a part of a resource."""
        listed = self.listed or self.document
        return codec.locate(listed.text, path, listed.name)


class MakeExpressions(Struct, frozen=True):
    """
    Creates the expressions for the data of one run. The run's facts, environment and directory do not change.

    `secrets` opens the run's secrets. `confine` checks the reads of expressions against the policy; None if there is no policy.
    """

    make: Any
    facts: Mapping[str, Any]
    environ: Mapping[str, str]
    secrets: Secrets
    confine: Callable[[Environment], None] | None = None

    def __call__(self, data: Mapping[str, Any], directory: str) -> Expressions:
        made: Expressions = self.make(self.facts, data, self.environ, directory)
        made.secrets = self.secrets
        if self.confine is not None:
            self.confine(made.environment)
        return made


def load_manifest(
    document: ManifestDocument,
    catalog: Catalog,
    make_expressions: MakeExpressions,
    overlays: tuple[Resolved, ...] = (),
    override: Mapping[str, Any] | None = None,
    read: ReadDocument = codec.decode_manifest,
    secrets: Secrets | None = None,
) -> ResolvedManifest:
    """
    Resolve and check a manifest. Blocking; call it in a thread.

    Args:
        document: The manifest.
        catalog: The types that the manifest may use.
        make_expressions: Creates the manifest's expressions when its data are resolved.
        overlays: Hiera documents that override the manifest's own data. Later documents take precedence.
        override: Data that override the manifest's data and the overlays.
        read: Parses the document.
        secrets: Collects the values that the data declare as secret, before the values are used.

    Raises:
        InputError: The manifest or its data are invalid.
    """
    with _garbage_rests():
        manifest, root = build_manifest(document, read)
        data = _data(root, document, make_expressions.facts, overlays, override, secrets or Secrets())
        expressions = make_expressions(data, document.directory)
        loaded = ResolvedManifest(
            document=document,
            resources=[],
            data=data,
            expressions=expressions,
            fail_on_error=manifest.ccm.fail_on_error,
            prune=manifest.ccm.prune,
            max_prune=manifest.ccm.max_prune,
            warnings=[f"{place}: {sentence}" for place, sentence in top_level_warnings(root, document)],
        )
        loaded.pre_message = _message(manifest.ccm, "pre_message", expressions, document)
        loaded.post_message = _message(manifest.ccm, "post_message", expressions, document)
        raw, listed, path = _resources(manifest.ccm, expressions, document)
        loaded.listed = listed
        loaded.resources = ResourceBuilder(catalog, expressions, listed.text, listed.name).expand(raw, path)
    return loaded


@contextmanager
def _garbage_rests() -> Iterator[None]:
    """
    Pause garbage collection while thousands of long-lived values are created.

    Otherwise the collector scans them repeatedly, which takes a fifth of the loading time.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _data(
    root: Mapping[str, Any],
    document: ManifestDocument,
    facts: Mapping[str, Any],
    overlays: tuple[Resolved, ...],
    override: Mapping[str, Any] | None,
    secrets: Secrets,
) -> dict[str, Any]:
    """Return the manifest's resolved data with its overrides, and the merge rules of both."""
    needs_rules = "#" in document.text
    own = resolve_values(root, facts, document.name, document.text if needs_rules else None)
    data, rules = own.data, list(own.rules)
    for overlay in overlays:
        data = merge.deep(data, overlay.data)
        rules += overlay.rules
    if override is not None:
        data = merge.deep(data, override)
    data = secrets.opened(data)
    secrets.declare(own.secret)
    secrets.learn_data(data)
    if rules:
        from ccm_agent.hiera.rules import check

        check(data, rules)
    return data


def _message(section: CcmSection, field: str, expressions: Expressions, document: ManifestDocument) -> str:
    text: str = getattr(section, field)
    if not has_markers(text):
        return text
    try:
        return expressions.text(text)
    except InputError as err:
        place_error(err, document, ("ccm", field))


def _resources(
    section: CcmSection, expressions: Expressions, document: ManifestDocument
) -> tuple[list[Any], ManifestDocument, Path]:
    """Return the raw list of resources, the document that contains it, and its path in the document."""
    path: Path = ("ccm", "resources")
    if section.resources_jet_file and section.resources is not None:
        raise ManifestError(
            "`resources` and `resources_jet_file` are mutually exclusive: remove one of them",
            place=codec.locate(document.text, ("ccm", "resources_jet_file"), document.name),
        )
    raw = section.resources
    if section.resources_jet_file:
        from ccm_agent.engine.jet_list import resources_from_jet

        try:
            return *resources_from_jet(section.resources_jet_file, expressions, document), ()
        except InputError as err:
            place_error(err, document, ("ccm", "resources_jet_file"))
    if raw is None or (isinstance(raw, list) and not any(raw)):
        place = codec.locate(document.text, path, document.name)
        raise ManifestError("the manifest has no resources: add at least one to `ccm.resources`", place=place)
    if not isinstance(raw, list):
        place = codec.locate(document.text, path, document.name)
        raise DocumentError("`resources` must be a list: begin each resource with `- `", place=place)
    return raw, document, path


def check_order(loaded: ResolvedManifest) -> None:
    """
    Refuse a manifest in which a resource requires or rescues a resource that is not declared before it. This check
    precedes all changes.

    Two cases are checked only when the resources are applied. A required resource with `control` may be skipped. A resource
    after a child manifest may require a resource that the child declares.

    Raises:
        ManifestError: A required resource is declared later. The error includes the position of the requirement.
    """
    declared_at_all = {key for declared in loaded.resources for key in keys_of(declared)}
    check_rescue(loaded)
    earlier: set[Key] = set()
    for declared in _before_children(loaded.resources):
        for number, text in enumerate(declared.wanted.require if declared.wanted.control is None else ()):
            found = parse_reference(text)
            key = (found.type, found.name) if found is not None else ("", "")
            if key in declared_at_all and key not in earlier:
                raise ManifestError(
                    f"{declared.reference} requires `{text}`, which is declared later: move it up",
                    place=loaded.place((*declared.path, "require", number)),
                )
        earlier.update(keys_of(declared))


def check_rescue(loaded: ResolvedManifest) -> None:
    """Refuse a `rescue` of a resource that is not declared earlier. Raises ManifestError with the position of the `rescue`."""
    if not any(declared.wanted.rescue for declared in loaded.resources):
        return
    earlier: set[Key] = set()
    for declared in loaded.resources:
        for number, text in enumerate(declared.wanted.rescue):
            found = parse_reference(text)
            if found is None or (found.type, found.name) not in earlier:
                raise ManifestError(
                    f"{declared.reference} rescues `{text}`, which is not declared before it in this manifest",
                    place=loaded.place((*declared.path, "rescue", number)),
                )
        earlier.update(keys_of(declared))


def _before_children(resources: Sequence[ResolvedResource]) -> Iterator[ResolvedResource]:
    for declared in resources:
        if declared.kind.contains_manifest:
            return
        yield declared


def keys_of(declared: ResolvedResource) -> Iterator[Key]:
    """Yield the keys by which references find a resource."""
    for name in (declared.wanted.name, declared.wanted.alias):
        if name:
            yield declared.kind.name, name
