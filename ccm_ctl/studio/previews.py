"""Previews of the files in a manifest: content and source of `file` resources, and rendered templates of scaffolds."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from ccm_agent.manifest.entries import EntryReader
from ccm_agent.model import codec
from ccm_agent.model.errors import CcmError, ExpressionError
from ccm_agent.model.formats.json_text import json_safe
from ccm_agent.resources.catalog import Catalog
from ccm_agent.resources.file.model import SCHEMES
from ccm_agent.resources.scaffold.model import DEFAULT_ENGINE, DELIMITERS
from ccm_agent.templates.rendering import DirectoryOptions
from ccm_agent.templates.resolve import evaluate_condition, render_text, resolve
from ccm_agent.templates.tree import render_apart
from ccm_ctl.studio.template_environment import TemplateEnvironment
from ccm_ctl.studio.template_files import TemplateFiles

FILES = 100
"""The maximum number of displayed files of one manifest."""
FILE_CHARACTERS = 20_000
"""The maximum number of displayed characters of one file."""
SHOWN_CHARACTERS = 500_000
"""The maximum number of displayed characters of all files together."""


class PreviewedFile(Struct, frozen=True, kw_only=True):
    """
    A file that a node would have.

    Attributes:
        path: The path of the resource in the manifest, or of the resource list if a template generates the resource.
        name: The file's path on the node; "" if it has none.
        origin: The source of the content, such as `content` or `templates/app/main.conf (jet)`.
        text: The content, or the beginning of it.
        note: Additional information, for example that the rest is left out.
        error: The reason why there is no content, with the position in the template.
    """

    path: list[str | int]
    name: str = ""
    origin: str = ""
    text: str = ""
    note: str = ""
    error: str = ""


def preview_files(
    root: Mapping[str, Any], environment: TemplateEnvironment, files: TemplateFiles
) -> tuple[list[PreviewedFile], int]:
    """
    Return the files of a manifest, and the number of files that are not shown. Blocking.

    Args:
        root: The manifest.
        environment: The environment of its templates.
        files: The files next to the manifest.
    """
    found = list(_Previews(environment, files).all(root))
    return found[:FILES], max(0, len(found) - FILES)


class _Previews:
    """Creates the previews of one manifest, with common limits for all of them."""

    def __init__(self, environment: TemplateEnvironment, files: TemplateFiles) -> None:
        self._environment = environment
        self._files = files
        self._room = SHOWN_CHARACTERS

    def all(self, root: Mapping[str, Any]) -> Iterator[PreviewedFile]:
        """Yield each file, in the order of the manifest."""
        section = root.get("ccm")
        if not isinstance(section, Mapping):
            return
        entries = section.get("resources")
        path: list[str | int] = ["ccm", "resources"]
        template = section.get("resources_jet_file")
        is_listed = isinstance(template, str) and template != "" and entries is None
        if is_listed:
            path = ["ccm", "resources_jet_file"]
            shown, entries = self._listed(str(template), path)
            yield shown
        reader = _LenientReader(Catalog(), None, "manifest")
        for number, entry in enumerate(entries if isinstance(entries, list) else []):
            try:
                found = list(reader.instances(entry, (*path, number)))
            except CcmError:
                continue  # lint reports this
            for kind, properties, at in found:
                place = path if is_listed else list(at)
                if kind.name == "file":
                    yield from self._file(properties, place)
                elif kind.name == "scaffold":
                    yield from self._scaffold(properties, place)

    def _listed(self, template: str, path: list[str | int]) -> tuple[PreviewedFile, object]:
        """Return the list of resources that a template generates, as text and as a value."""
        try:
            text = self._environment.render(
                "jet", self._environment.read_file(f"./{template}"), name=template
            )
            entries = codec.decode_manifest(text, f"{template} (rendered)") if text.strip() else []
        except CcmError as err:
            return PreviewedFile(path=path, origin=template, error=_said(err)), None
        return self._shown(path, "", f"{template} (jet): the list of resources", text), entries

    def _file(self, properties: Mapping[str, Any], path: list[str | int]) -> Iterator[PreviewedFile]:
        content, source = properties.get("content"), properties.get("source")
        origin = "content" if isinstance(content, str) else "source"
        if not isinstance(content, str) and not (isinstance(source, str) and source):
            return
        name = ""
        try:
            name = render_text(str(properties.get("name", "")), self._environment)
            if self._text(properties, "ensure") in ("absent", "directory"):
                return
            if isinstance(content, str):
                text: str | bytes = render_text(content, self._environment)
            else:
                found = render_text(str(source), self._environment)
                origin = f"source {found}"
                if found.startswith(SCHEMES):
                    yield PreviewedFile(path=path, name=name, origin="source", note="The node downloads it.")
                    return
                text = self._files.read(found)
            yield self._shown(path, name, origin, text, self._note(properties))
        except CcmError as err:
            yield PreviewedFile(path=path, name=name, origin=origin, error=_said(err))

    def _scaffold(self, properties: Mapping[str, Any], path: list[str | int]) -> Iterator[PreviewedFile]:
        name, origin = "", "source"
        try:
            name = render_text(str(properties.get("name", "")), self._environment)
            if self._text(properties, "ensure") == "absent":
                return
            source = origin = self._text(properties, "source")
            engine = str(properties.get("engine") or DEFAULT_ENGINE)
            if engine not in DELIMITERS or not source:
                return  # lint reports this
            left, right = DELIMITERS[engine]
            options = DirectoryOptions(
                source=source,
                engine=engine,
                left_delimiter=str(properties.get("left_delimiter") or left),
                right_delimiter=str(properties.get("right_delimiter") or right),
                skip_empty=properties.get("skip_empty") is True,
            )
            data = resolve(properties.get("data") or {}, self._environment)
            environment = (
                self._environment.with_data(data) if isinstance(data, dict) and data else self._environment
            )
            if environment.renderer is None:
                raise ExpressionError("templates are not rendered here; a plan shows them")
            rendered = render_apart(self._files.read_tree(source), options, environment)
            note = " ".join(filter(None, (self._note(properties), self._post(properties))))
            for file, content in rendered.files.items():
                yield self._shown(path, posixpath.join(name, file), f"{source} ({engine})", content, note)
            if not rendered.files:
                yield PreviewedFile(path=path, name=name, origin=origin, error=f"{source} produces no files")
        except CcmError as err:
            yield PreviewedFile(path=path, name=name, origin=origin, error=_said(err))

    def _text(self, properties: Mapping[str, Any], field: str) -> str:
        value = properties.get(field)
        return render_text(value, self._environment) if isinstance(value, str) else ""

    def _note(self, properties: Mapping[str, Any]) -> str:
        """Return a note if the node skips the resource."""
        control = properties.get("control")
        if not isinstance(control, Mapping):
            return ""
        for word, wanted in (("if", True), ("unless", False)):
            condition = control.get(word)
            if isinstance(condition, str) and evaluate_condition(condition, self._environment) is not wanted:
                return f"The node skips it because of `control.{word}`."
        return ""

    def _post(self, properties: Mapping[str, Any]) -> str:
        return "Commands of `post` run on the node only." if properties.get("post") else ""

    def _shown(
        self, path: list[str | int], name: str, origin: str, content: str | bytes, note: str = ""
    ) -> PreviewedFile:
        """Return the preview of a file. Only text is included, up to the remaining space."""
        if isinstance(content, bytes):
            try:
                text = content.decode()
            except UnicodeDecodeError:
                return PreviewedFile(
                    path=path, name=json_safe(name), origin=origin, note=f"Not text: {len(content)} bytes."
                )
        else:
            text = content
        length = min(FILE_CHARACTERS, self._room)
        self._room -= min(length, len(text))
        if left_out := max(0, len(text) - length):
            note = f"{note} {left_out} more characters are left out.".strip()
        return PreviewedFile(
            path=path,
            name=json_safe(name),
            origin=json_safe(origin),
            text=json_safe(text[:length]),
            note=note,
        )


class _LenientReader(EntryReader):
    """Leaves out entries that cannot be read, because lint reports them."""

    def refuse(self, err: Exception) -> None:
        """Ignore the error, so that reading continues with the next entry."""


def _said(err: CcmError) -> str:
    return json_safe(str(err)[:FILE_CHARACTERS])
