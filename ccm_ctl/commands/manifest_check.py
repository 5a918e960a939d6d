"""Checks manifests and properties with the code of `ccm lint` before anything is sent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ccm_agent.clikit.text import plural
from ccm_agent.model.errors import InputError, ManifestError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ccm_agent.manifest.findings import Finding
    from ccm_ctl.app import Application
    from ccm_ctl.fleet.content import Content

SHOWN = 20
"""Findings of one manifest that are shown."""

WAY_OUT = "Use --force to send it anyway, such as for a type that only newer agents have."


def force_option() -> click.Option:
    """The option that sends what the check refuses."""
    return click.Option(
        ["--force"],
        is_flag=True,
        help="Send the manifest even if the check finds errors, such as types of newer agents. "
        "Agents refuse what they cannot apply.",
    )


def read_checked(
    application: Application, path: str, manifest: str = "", name: str = "", *, force: bool = False
) -> Content:
    """
    Read a manifest file or a directory with one, and check the manifest. Warnings are shown.

    Args:
        application: Shows warnings.
        path: File or directory.
        manifest: Path of the manifest within the directory; "" is `manifest.yaml`.
        name: What it is to be called; "" takes it from the path.
        force: Send it despite errors, except where it is not YAML.

    Raises:
        InputError: It cannot be read or sent, or has errors: the message shows each with its line.
    """
    from ccm_agent.manifest.findings import format_finding
    from ccm_ctl.fleet.content import read_content

    content = read_content(Path(path), manifest, name)
    for one in check_content(content, force=force)[:SHOWN]:
        application.terminal.note(format_finding(one, content.document))
    return content


def check_content(content: Content, *, force: bool) -> list[Finding]:
    """
    Check a manifest with the code of `ccm lint`; what it finds and does not refuse.

    Args:
        content: The manifest.
        force: Accept errors, except where it is not YAML.

    Raises:
        InputError: It has errors: the message shows each with its line.
    """
    from ccm_agent.manifest.document import ManifestDocument
    from ccm_agent.manifest.findings import ERROR, format_finding
    from ccm_agent.manifest.lint import lint
    from ccm_agent.manifest.rules import ALWAYS
    from ccm_agent.manifest.tinycm.detect import is_tinycm

    if is_tinycm(content.source, content.document):
        raise ManifestError(
            f"{content.source}: is a TinyCM manifest, which agents do not take; apply it on the host with `ccm apply`"
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
    return found


def check_properties(type_name: str, properties: Mapping[str, Any]) -> None:
    """
    Check the properties of a single resource.

    Raises:
        InputError: With each error.
    """
    from ccm_agent.manifest.findings import ERROR
    from ccm_agent.manifest.lint import lint_request

    errors = [one for one in lint_request(type_name, properties) if one.level == ERROR]
    if errors:
        title = f"{type_name}#{properties['name']}"
        lines = [one.message.removeprefix(f"{title}: ") for one in errors[:SHOWN]]
        raise InputError(_refusal(title, errors, lines))


def _refusal(what: str, errors: Sequence[Finding], lines: list[str]) -> str:
    more = [f"and {len(errors) - SHOWN} more"] if len(errors) > SHOWN else []
    return "\n".join([f"{what}: {plural(len(errors), 'error')}; nothing was sent", *lines, *more])
