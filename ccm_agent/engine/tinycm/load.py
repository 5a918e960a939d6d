"""
Converts a TinyCM manifest to resources, which are then applied like those of other manifests.

`{{ }}` and `${ }` in the manifest are not templates. They are part of a file's content.
"""

from __future__ import annotations

import asyncio
import codecs
import posixpath
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ccm_agent.engine.load import ResolvedManifest
from ccm_agent.engine.tinycm.content import interpolate
from ccm_agent.engine.tinycm.module_path import TemplateDirectory
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
from ccm_agent.model.formats.urls import is_web
from ccm_agent.model.ports import Transfer

if TYPE_CHECKING:
    from ccm_agent.engine.deps import EngineDeps
    from ccm_agent.engine.permission import Permission
    from ccm_agent.engine.run_state import SharedRunState
    from ccm_agent.manifest.expressions import Expressions
    from ccm_agent.model.data import Resolved
    from ccm_agent.resources.contract import ResolvedResource
    from ccm_agent.templates.env import Environment

CONTENT_LIMIT_BYTES = 16 << 20
"""The largest file in which constants are replaced. Other files are copied, up to the limit of the file type."""


async def load_tinycm(
    document: ManifestDocument,
    state: SharedRunState,
    overlays: tuple[Resolved, ...] = (),
    module_path: str = "",
) -> ResolvedManifest:
    """
    Resolve and check a manifest. Content with constants is fetched here.

    Args:
        document: The manifest.
        state: The run's options, facts and dependencies.
        overlays: Data that override the manifest's own constants. Later overlays take precedence.
        module_path: The location of the templates; see `ManifestSource`.

    Raises:
        InputError: The manifest is invalid or uses an unsupported feature.
        CcmError: A file that the manifest refers to cannot be fetched.
        PolicyError: The node's policy does not allow reading the file.
    """
    deps, permission = state.deps, state.permission
    constants, definitions = await asyncio.to_thread(_read, document, state, overlays)
    state.secrets.learn_data(constants)
    resources: list[ResolvedResource] = []
    expressions = state.expressions(constants, document.directory)
    # the empty document text ensures that nothing is treated as a template
    builder = ResourceBuilder(deps.catalog, expressions, "", document.name)
    modules = TemplateDirectory(
        base=module_path or document.directory, directory=document.directory, resolve=deps.resolve_path
    )
    for one in definitions:
        try:
            kind = deps.catalog.find(one.type)
            await _find_template(one, modules)
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


def _read(
    document: ManifestDocument, state: SharedRunState, overlays: tuple[Resolved, ...]
) -> tuple[dict[str, Any], list[ResourceDefinition]]:
    def hostname() -> str:
        """Return the host's full name. This may gather facts."""
        fqdn = state.options.node or state.facts.get("fqdn")
        return str(fqdn) if fqdn else str(state.facts["host"]["info"]["hostname"])

    constants, definitions = read_definitions(document, hostname)
    for data in (*(overlay.data for overlay in overlays), state.options.data or {}):
        constants = merge.deep(constants, data)
    constants = state.secrets.opened(constants)
    # constants are not inserted by templates, which would refuse unopened secrets
    state.secrets.require_opened(constants)
    return constants, definitions


def _placed(err: CcmError, one: ResourceDefinition, document: ManifestDocument) -> CcmError:
    """Return the error with the definition's name and line."""
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
    """Return the properties of the resource. The constants are the data of its expressions."""
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
        raise ManifestError("`contents` is missing: add the file's content, or write `ensure: exists`")
    return raw


async def _content(
    one: ResourceDefinition, environment: Environment, deps: EngineDeps, directory: str
) -> dict[str, Any]:
    """Return `content`, or `source` if the fetched file contains no constants."""
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
    if is_web(written):
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


async def _find_template(one: ResourceDefinition, modules: TemplateDirectory) -> None:
    """Write the path or URL of a template into its definition."""
    if one.type == "file" and one.said.get("type") == "template" and "contents" in one.said:
        one.said["contents"] = await asyncio.to_thread(modules.find, str(one.said["contents"]))


async def _check_content(one: ResourceDefinition, permission: Permission, directory: str) -> None:
    """Check that the node's policy allows reading a file's content. The content is read while the manifest is loaded."""
    if one.type == "file" and one.said.get("type", "constant") != "constant" and "contents" in one.said:
        await permission.check_source(str(one.said["contents"]), directory)


def _encoding(name: str) -> str:
    try:
        return codecs.lookup(name).name
    except LookupError:
        raise ManifestError(f"unknown encoding `{name}`; write one such as utf-8 or latin-1") from None


def _decoded(data: bytes, encoding: str) -> str:
    try:
        return data.decode(encoding)
    except (UnicodeError, LookupError, ValueError) as err:
        raise DownloadError(f"the fetched content is not {encoding}: {err}") from err
