"""The files of the pages, stored in memory. Paths in requests are not used to access the file system."""

from __future__ import annotations

import hashlib
from importlib.resources import files
from importlib.resources.abc import Traversable

from aiohttp import web
from msgspec import Struct

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".webmanifest": "application/manifest+json",
}

PAGES = (
    "/",
    "/nodes/{name}",
    "/runs",
    "/runs/{run}",
    "/changes",
    "/assignments",
    "/assignments/{name}",
    "/data",
    "/data/{key:.+}",
    "/schedules",
    "/registrations",
    "/slots",
    "/studio",
)
"""The paths of pages. All of them return the same document, whose script shows the content for the path."""


class StaticFile(Struct, frozen=True):
    """A file with its media type and its ETag for caches."""

    content: bytes
    kind: str
    tag: str


def read_static() -> dict[str, StaticFile]:
    """Return all files of the pages, by path below `static`."""
    found: dict[str, StaticFile] = {}
    _collect(files("ccm_ctl.dashboard") / "static", "", found)
    return found


def _collect(folder: Traversable, prefix: str, found: dict[str, StaticFile]) -> None:
    for entry in folder.iterdir():
        if entry.is_dir():
            _collect(entry, f"{prefix}{entry.name}/", found)
            continue
        kind = TYPES.get(entry.name[entry.name.rfind(".") :])
        if kind is not None:
            content = entry.read_bytes()
            found[f"{prefix}{entry.name}"] = StaticFile(
                content, kind, hashlib.sha256(content).hexdigest()[:32]
            )


def add_pages(application: web.Application, found: dict[str, StaticFile]) -> None:
    """Add the routes of files and pages."""

    async def file(request: web.Request) -> web.Response:
        wanted = found.get(request.match_info["path"])
        if wanted is None:
            raise web.HTTPNotFound
        return _served(request, wanted)

    async def page(request: web.Request) -> web.Response:
        return _served(request, found["index.html"])

    application.router.add_get("/static/{path:.+}", file)
    for path in PAGES:
        application.router.add_get(path, page)


def _served(request: web.Request, file: StaticFile) -> web.Response:
    """
    Return the file, or "not modified" if the browser already has it. Browsers check each time, so different versions are never
    mixed.
    """
    headers = {"ETag": f'"{file.tag}"', "Cache-Control": "no-cache"}
    if any(tag.value == file.tag for tag in request.if_none_match or ()):
        return web.Response(status=304, headers=headers)
    return web.Response(body=file.content, headers={**headers, "Content-Type": file.kind})
