"""The API of the Studio page. It serves the schema, files, and findings of lint."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TypeVar

import msgspec
from aiohttp import web
from msgspec import Struct

from ccm_agent.clikit.text import plural
from ccm_agent.manifest.document import make_document
from ccm_agent.manifest.findings import Finding
from ccm_agent.manifest.lint import lint
from ccm_agent.model.errors import InputError, NotFoundError, UsageError
from ccm_agent.model.formats.untrusted_json import decode_foreign
from ccm_agent.resources.catalog import Catalog
from ccm_ctl.dashboard.middleware import READING, answer
from ccm_ctl.studio.workspace import FILE_BYTES, Workspace

T = TypeVar("T")

BODY_BYTES = 2 * FILE_BYTES
"""The maximum size of a request with a manifest. In JSON, characters can take more bytes."""

FINDINGS = 500
"""The maximum number of findings in a response."""


class LintRequest(Struct, frozen=True, kw_only=True):
    """A manifest in the editor."""

    text: str
    path: str = ""


class SaveRequest(Struct, frozen=True, kw_only=True):
    """A manifest to save, and the digest of the file when it was opened ("" for a new file)."""

    path: str
    text: str
    digest: str = ""


class StudioPages:
    """
    The API of the Studio page.

    Args:
        workspace: The files that may be opened and saved. None: the text stays in the browser.
    """

    def __init__(self, workspace: Workspace | None) -> None:
        self._workspace = workspace
        self._linting = asyncio.Semaphore(2)

    def add_to(self, application: web.Application) -> None:
        """
        Add the routes. Lint does not require the right to act. Files are available only if this host's operator is the only user.
        """
        application[READING].update(("/api/studio/lint", "/api/studio/files"))
        application.router.add_get("/api/studio", self._show)
        application.router.add_get("/api/studio/schema", self._schema)
        application.router.add_post("/api/studio/lint", self._lint)
        application.router.add_get("/api/studio/files", self._open)
        application.router.add_put("/api/studio/files", self._save)

    async def _show(self, request: web.Request) -> web.Response:
        """Return the open folder and its files."""
        if self._workspace is None:
            return answer({"folder": None, "only": "", "files": []})
        files = await asyncio.to_thread(self._workspace.files)
        return answer({"folder": str(self._workspace.root), "only": self._workspace.only, "files": files})

    async def _schema(self, request: web.Request) -> web.Response:
        """Return the JSON Schema of manifests, with the types that are installed here."""
        return answer(await asyncio.to_thread(manifest_schema))

    async def _open(self, request: web.Request) -> web.Response:
        """Return a file, with its text and digest."""
        return answer(await asyncio.to_thread(self._files().read, request.query.get("path", "")))

    async def _save(self, request: web.Request) -> web.Response:
        """Save a file, unless the agents' parser finds an error that the stored file does not have."""
        said, files = await read_body(request, SaveRequest), self._files()
        async with self._linting:
            await asyncio.to_thread(_check_edit, files, said)
        digest = await asyncio.to_thread(files.write, said.path, said.text, said.digest)
        return answer({"digest": digest})

    async def _lint(self, request: web.Request) -> web.Response:
        """Return the findings of `ccm lint` for a text."""
        said = await read_body(request, LintRequest)
        async with self._linting:
            found = await asyncio.to_thread(partial(lint_text, said.text, said.path or "manifest.yaml"))
        return answer({"findings": found[:FINDINGS], "count": len(found)})

    def _files(self) -> Workspace:
        if self._workspace is None:
            raise NotFoundError("no folder is open here; `ccmctl studio FOLDER` opens one")
        return self._workspace


def _check_edit(files: Workspace, said: SaveRequest) -> None:
    """
    Refuse an edit that breaks a file. If the file already has errors, it may be saved, so that it can be repaired in steps.

    Raises:
        InputError: The edit breaks the file. The error names the first problem.
    """
    files.check_path(said.path)
    errors = _errors_of(said.text, said.path)
    if errors and not (said.digest and _errors_of(files.read(said.path).text, said.path)):
        more = f" (and {plural(len(errors) - 1, 'more error')})" if len(errors) > 1 else ""
        raise InputError(f"not saved, the file is unchanged: agents would refuse it: {errors[0]}{more}")


def _errors_of(text: str, path: str) -> list[Finding]:
    return [one for one in lint_text(text, path) if one.level == "error"]


async def read_body(request: web.Request, kind: type[T]) -> T:
    """
    Return the body of a request. A manifest may exceed the usual limit for bodies.

    Raises:
        UsageError: The body is too large or not valid.
    """
    content = bytearray()
    async for chunk in request.content.iter_any():
        content += chunk
        if len(content) > BODY_BYTES:
            raise UsageError(f"the request is larger than {BODY_BYTES >> 20} MiB")
    try:
        return decode_foreign(bytes(content), kind)
    except msgspec.MsgspecError as err:
        raise UsageError("the body of the request is invalid") from err


def manifest_schema() -> dict[str, object]:
    """Return the JSON Schema of manifests, as `ccm schema` prints it."""
    from ccm_agent.resources.schema import manifest_schema

    return manifest_schema(Catalog().all())


def lint_text(text: str, name: str) -> list[Finding]:
    """Return the findings in a text, without reading files of this host."""
    return lint(make_document(text.encode(errors="replace"), name, "/"))
