"""
A TinyCM manifest to resources of our own model, which are then applied as any others are.

Nothing in it is a template of ours: `{{ }}` and `${ }` in a file's contents are what the file is to hold.
"""

from __future__ import annotations

import asyncio
import codecs
import posixpath
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from ccm_agent.engine.load import MakeExpressions, ResolvedManifest
from ccm_agent.engine.tinycm.content import interpolate
from ccm_agent.manifest.build import ResourceBuilder
from ccm_agent.manifest.document import ManifestDocument
from ccm_agent.manifest.tinycm.definitions import MASK, ResourceDefinition, read_definitions
from ccm_agent.model import merge
from ccm_agent.model.errors import (
    CcmError,
    DownloadError,
    InputError,
    ManifestError,
    Place,
    PolicyError,
)
from ccm_agent.model.ports import Transfer

if TYPE_CHECKING:
    from ccm_agent.engine.deps import EngineDeps
    from ccm_agent.engine.permission import Permission
    from ccm_agent.manifest.expressions import Expressions
    from ccm_agent.model.data import Resolved
    from ccm_agent.resources.converge import ResolvedResource
    from ccm_agent.templates.env import Environment

CONTENT_LIMIT_BYTES = 16 << 20
"""A file whose constants are put in may be so large; others are copied and have the limit of the file type."""


class TinyHost(Struct, frozen=True, kw_only=True):
    """
    What a manifest is resolved for.

    Attributes:
        name: What filters are compared with; "" asks the facts.
        facts: This host's.
        overlays, override: Data over the manifest's own constants, later ones win.
    """

    facts: Mapping[str, Any]
    name: str = ""
    overlays: tuple[Resolved, ...] = ()
    override: Mapping[str, Any] | None = None

    def hostname(self) -> str:
        """The host's whole name. Blocking: facts are gathered for it."""
        if self.name:
            return self.name
        fqdn = self.facts.get("fqdn")
        return str(fqdn) if fqdn else str(self.facts["host"]["info"]["hostname"])


async def load_tinycm(
    document: ManifestDocument,
    deps: EngineDeps,
    make_expressions: MakeExpressions,
    host: TinyHost,
    permission: Permission | None = None,
) -> ResolvedManifest:
    """
    Resolve and check a manifest; what its files are to hold is fetched where constants are put into it.

    Raises:
        InputError: Something in it cannot be right, or is not supported.
        CcmError: A file that it names cannot be fetched.
        PolicyError: The node's policy does not let it be read.
    """
    constants, definitions = await asyncio.to_thread(_read, document, host)
    resources: list[ResolvedResource] = []
    expressions = make_expressions(constants, document.directory)
    # no text, so nothing is taken for a template
    builder = ResourceBuilder(deps.catalog, expressions, "", document.name)
    for one in definitions:
        try:
            kind = deps.catalog.find(one.type)
            if permission is not None:
                await _check_content(one, permission, document.directory)
            raw = await _raw(one, expressions, deps, document.directory)
            resources.append(builder.declare(kind, raw, (), len(resources)))
        except PolicyError:
            raise
        except CcmError as err:
            raise _placed(err, one, document) from err
    return ResolvedManifest(
        document=document,
        resources=resources,
        data=constants,
        expressions=expressions,
        listed=replace(document, text=""),
    )


def _read(document: ManifestDocument, host: TinyHost) -> tuple[dict[str, Any], list[ResourceDefinition]]:
    constants, definitions = read_definitions(document, host.hostname)
    for overlay in host.overlays:
        constants = merge.deep(constants, overlay.data)
    if host.override:
        constants = merge.deep(constants, host.override)
    return constants, definitions


def _placed(err: CcmError, one: ResourceDefinition, document: ManifestDocument) -> CcmError:
    """The same error with the definition's name and line."""
    if isinstance(err, InputError) and err.place is not None and err.place.line:
        return err
    message = err.message if err.message.startswith(f"{one.type}#") else f"{one.id}: {err.message}"
    place = Place(document.name, one.parts[0].line)
    return (
        type(err)(message, place=place)
        if isinstance(err, InputError)
        else ManifestError(message, place=place)
    )


async def _raw(
    one: ResourceDefinition, expressions: Expressions, deps: EngineDeps, directory: str
) -> dict[str, Any]:
    """The properties of our own type; the constants are the data of the expressions."""
    raw: dict[str, Any] = {"name": one.name}
    if one.after:
        raw["require"] = ["#".join(identifier.split("::", 1)) for identifier in one.after]
    if one.type == "package":
        raw["ensure"] = "absent" if one.said.get("ensure") == "removed" else "present"
        if one.said.get("packagemanager", "autodetect") != "autodetect":
            raw["provider"] = one.said["packagemanager"]
        return raw
    ensure = one.said.get("ensure", "contents")
    if ensure in ("removed", "deleted"):
        return {**raw, "ensure": "absent"}
    raw |= {
        "ensure": "present",
        "owner": one.said.get("owner", "*"),
        "group": one.said.get("group", "*"),
        "mode": one.said.get(MASK, "xxx"),
    }
    if "contents" in one.said:
        raw |= await _content(one, expressions.environment, deps, directory)
        if ensure == "exists":
            raw["replace"] = False
    elif ensure == "contents" and ("type" in one.said or "ensure" in one.said):
        raise ManifestError("`contents` is missing: say what is in the file, or write `ensure: exists`")
    return raw


async def _content(
    one: ResourceDefinition, environment: Environment, deps: EngineDeps, directory: str
) -> dict[str, Any]:
    """`content`, or `source` where nothing has to be put into what is fetched."""
    kind, written = one.said.get("type", "constant"), str(one.said["contents"])
    needs_constants = one.said.get("interpolate", False)
    if kind == "constant":
        if needs_constants:
            written = await asyncio.to_thread(interpolate, written, environment.data)
        return {"content": written}
    if kind == "http" and not written.startswith(("http://", "https://")):
        raise ManifestError(f"`contents` of `type: http` must be an http or https URL, not `{written}`")
    encoding = _encoding(str(one.said.get("encoding", "utf-8")))
    if not needs_constants and (kind == "template" or encoding == "utf-8"):
        return {"source": written}
    if kind == "http":
        transfer = Transfer(url=written, limit_bytes=CONTENT_LIMIT_BYTES)
        data = (await deps.port("download").fetch(transfer)).content
    else:
        path = posixpath.normpath(posixpath.join(directory, written))
        data = await deps.files.read(path, CONTENT_LIMIT_BYTES)
    text = _decoded(data, encoding)
    if needs_constants:
        text = await asyncio.to_thread(
            environment.render, "jinja", text, name=written, variables=environment.data
        )
    return {"content": text}


async def _check_content(one: ResourceDefinition, permission: Permission, directory: str) -> None:
    """See that the node's policy lets what a file is to hold be read; it is, while the manifest is loaded."""
    if one.type == "file" and one.said.get("type", "constant") != "constant" and "contents" in one.said:
        await permission.check_source(str(one.said["contents"]), directory)


def _encoding(name: str) -> str:
    try:
        return codecs.lookup(name).name
    except LookupError:
        raise ManifestError(f"there is no encoding `{name}`, such as utf-8 or latin-1") from None


def _decoded(data: bytes, encoding: str) -> str:
    try:
        return data.decode(encoding)
    except (UnicodeError, LookupError, ValueError) as err:
        raise DownloadError(f"what was fetched is not {encoding}: {err}") from err
