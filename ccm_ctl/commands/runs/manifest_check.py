"""Check manifests and properties with the code of `ccm lint` before anything is sent."""

from __future__ import annotations

import posixpath
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ccm_agent.clikit.text import plural
from ccm_agent.manifest.expressions import holds_templates
from ccm_agent.manifest.findings import ERROR, format_finding
from ccm_agent.manifest.rules import ALWAYS
from ccm_agent.manifest.tinycm.detect import is_tinycm
from ccm_agent.model.codec import decode_document
from ccm_agent.model.errors import DocumentError, InputError, ManifestError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ccm_agent.manifest.findings import Finding
    from ccm_ctl.app import Application
    from ccm_ctl.fleet.content import Content

SHOWN = 20
"""The maximum number of findings that are shown for one manifest."""

WAY_OUT = "Use --force to send it anyway, such as for a type that only newer agents have."


def force_option() -> click.Option:
    """Return the option `--force`, which sends a manifest despite errors."""
    return click.Option(
        ["--force"],
        is_flag=True,
        help="Send the manifest even if the check finds errors, such as types of newer agents. "
        "Agents refuse resources that they cannot apply.",
    )


def read_checked(
    application: Application, path: str, manifest: str = "", name: str = "", *, force: bool = False
) -> Content:
    """
    Read a manifest from a file or a directory, and check it. Warnings are shown.

    Args:
        application: Shows warnings.
        path: The file or directory.
        manifest: The path of the manifest within the directory; "" for `manifest.yaml`.
        name: The name of the manifest; "" for the name of the file or directory.
        force: Whether to accept errors, except invalid YAML.

    Raises:
        InputError: The manifest cannot be read or sent, or has errors. The message shows each error with its line.
    """
    from ccm_ctl.fleet.content import read_content

    content = read_content(Path(path), manifest, name)
    found = check_content(content, path, force=force)
    for one in found[:SHOWN]:
        application.terminal.note(format_finding(one, content.document))
    return content


def check_content(content: Content, path: str | Path, *, force: bool) -> list[Finding]:
    """
    Check a manifest and the manifests that it applies, with the code of `ccm lint`. Return the findings that do not refuse it.

    Args:
        content: The manifest.
        path: The file or directory of the manifest.
        force: Whether to accept errors, except invalid YAML.

    Raises:
        InputError: The manifest has errors. The message shows each error with its line.
    """
    from ccm_agent.manifest.document import ManifestDocument
    from ccm_agent.manifest.lint import lint

    if is_tinycm(content.source, content.document):
        raise ManifestError(
            f"{content.source}: a TinyCM manifest, which agents do not accept; apply it on the host with `ccm apply`"
        )
    directory = str(Path(content.source).absolute().parent)
    document = ManifestDocument(
        text=content.document, name=content.source, directory=directory, digest=content.digest
    )
    found = lint(document)
    errors = [one for one in found if one.level == ERROR]
    refused = [one for one in errors if one.rule in ALWAYS] if force else errors
    if refused:
        shown = [format_finding(one, content.document) for one in refused[:SHOWN]]
        way_out = "" if any(one.rule in ALWAYS for one in refused) else f"\n{WAY_OUT}"
        raise InputError(f"{_refusal(content.source, refused, shown)}{way_out}")
    if Path(path).is_dir():
        _check_children(content, str(Path(path).absolute()), force=force)
    return found


def _check_children(content: Content, root: str, *, force: bool) -> None:
    """
    Check the manifests in a directory that its manifest applies by a fixed name, directly or through other manifests.

    A name with a template is only known on the node, so it is not checked.

    Raises:
        InputError: At least one of them has errors.
    """
    from ccm_agent.manifest.document import make_document
    from ccm_agent.manifest.lint import lint

    files = {posixpath.normpath(posixpath.join(root, one)) for one in content.files}
    top = posixpath.normpath(Path(content.source).absolute())
    document = make_document(content.document.encode(), top, posixpath.dirname(top))
    waiting, seen = [document], {top}
    while waiting:
        parent = waiting.pop()
        for name in child_names(parent.text):
            path = posixpath.normpath(posixpath.join(parent.directory, name))
            if path in seen or path not in files:
                continue
            seen.add(path)
            child = make_document(Path(path).read_bytes(), path, posixpath.dirname(path))
            waiting.append(child)
            errors = [one for one in lint(child) if one.level == ERROR and (not force or one.rule in ALWAYS)]
            if errors:
                shown = [format_finding(one, child.text) for one in errors[:SHOWN]]
                way_out = "" if force else f"\n{WAY_OUT}"
                raise InputError(f"{_refusal(path, errors, shown)}{way_out}")


def child_names(text: str) -> list[str]:
    """Return the names of the `apply` resources of a manifest, without names that contain a template; [] if it cannot be read."""
    try:
        document = decode_document(text)
    except DocumentError:
        return []
    section = document.get("ccm") if isinstance(document, dict) else None
    entries = section.get("resources") if isinstance(section, dict) else None
    names: list[str] = []
    for entry in entries if isinstance(entries, list) else []:
        body = entry.get("apply") if isinstance(entry, dict) else None
        if isinstance(body, dict):
            names.append(str(body.get("name", "")))
        names += [
            str(name)
            for item in (body if isinstance(body, list) else [])
            if isinstance(item, dict)
            for name in item
            if name != "defaults"
        ]
    return [name for name in names if name and not holds_templates(name)]


def check_properties(type_name: str, properties: Mapping[str, Any]) -> None:
    """
    Check the properties of a single resource.

    Raises:
        InputError: A property is not valid. The message contains all errors.
    """
    from ccm_agent.manifest.lint import lint_request

    errors = [one for one in lint_request(type_name, properties) if one.level == ERROR]
    if errors:
        title = f"{type_name}#{properties['name']}"
        lines = [one.message.removeprefix(f"{title}: ") for one in errors[:SHOWN]]
        way_out = "Use --unchecked to send it anyway, such as for a property that only newer agents have."
        raise InputError(f"{_refusal(title, errors, lines)}\n{way_out}")


def _refusal(what: str, errors: Sequence[Finding], lines: list[str]) -> str:
    more = [f"and {len(errors) - SHOWN} more"] if len(errors) > SHOWN else []
    return "\n".join([f"{what}: {plural(len(errors), 'error')}; nothing was sent", *lines, *more])
