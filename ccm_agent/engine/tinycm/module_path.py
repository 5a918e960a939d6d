"""
The module path of a TinyCM manifest: the directory or URL that contains its templates.

A manifest may come from another host, so only templates within the module path are used.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from urllib.parse import quote, urlsplit, urlunsplit

from msgspec import Struct

from ccm_agent.model.errors import ManifestError
from ccm_agent.model.formats.urls import is_web
from ccm_agent.model.secret import mask_url


def folder_of_url(url: str) -> str:
    """Return the URL of the folder that contains a URL, without query and fragment."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc, posixpath.dirname(parts.path), "", ""))


class TemplateDirectory(Struct, frozen=True, kw_only=True):
    """
    The location of templates.

    Attributes:
        base: An absolute directory, or an http(s) URL.
        directory: The manifest's directory. A template below it keeps its relative path.
        resolve: Returns a path without symlinks; blocking.
    """

    base: str
    directory: str
    resolve: Callable[[str], str]

    def find(self, written: str) -> str:
        """
        Return the source of a template: a URL, or a path that is absolute or relative to the manifest. Blocking.

        Raises:
            ManifestError: The template is outside the module path.
        """
        parts = written.split("/")
        if not written or written.startswith("/") or ".." in parts or "\0" in written or "\\" in written:
            self._refuse(written)
        if is_web(self.base):
            if ":" in parts[0]:
                self._refuse(written)
            split = urlsplit(self.base)
            path = f"{split.path.rstrip('/')}/{quote(posixpath.normpath(written))}"
            return urlunsplit((split.scheme, split.netloc, path, "", ""))
        path = posixpath.normpath(posixpath.join(self.base, written))
        root = self.resolve(self.base).rstrip("/")
        if not self.resolve(path).startswith(f"{root}/"):
            self._refuse(written)
        return written if self.base == self.directory else path

    def _refuse(self, written: str) -> None:
        raise ManifestError(
            f"the template `{written}` is outside the module path {mask_url(self.base)}; "
            "put it below the module path, or name another with --module-path"
        )
