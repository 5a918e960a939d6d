"""Properties and state of a scaffold resource."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from ccm_agent.model.formats.durations import parse_duration
from ccm_agent.model.formats.field_rules import (
    Extension,
    ExtensionValues,
    PublishDigest,
    RunsCommand,
    TemplatedKeys,
    Untemplated,
)
from ccm_agent.model.resource import CommonProperties, CommonState
from ccm_agent.model.resource_diff import ShowLines

DELIMITERS = {"jet": ("[[", "]]"), "go": ("{{", "}}"), "jinja": ("{{", "}}")}
"""The template engines, each with its default delimiters."""
DEFAULT_ENGINE = "jet"
DEFAULT_TIMEOUT = "15m"
"""
The default time limit of a `post` command. Formatting, checking or encrypting a file takes less time, so a slower command is
probably waiting for input.
"""


class ScaffoldProperties(CommonProperties, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A directory of files that are rendered from a directory of templates."""

    name: Annotated[str, Meta(description="Absolute path of the directory to render into.")]
    ensure: Annotated[str, Meta(description="`present` or `absent`.")] = ""
    source: Annotated[
        str, Meta(description="Directory of templates, absolute or relative to the manifest.")
    ] = ""
    engine: Annotated[
        str,
        Untemplated,
        ExtensionValues("jinja"),
        Meta(
            description="Template engine: `jet` (the default), `go`, or `jinja`, which Choria CCM does not support."
        ),
    ] = ""
    skip_empty: Annotated[
        bool, Meta(description="Do not create a file for a template that renders to only whitespace.")
    ] = False
    left_delimiter: Annotated[
        str,
        Untemplated,
        Meta(description="Opening delimiter of template actions, instead of the engine's default."),
    ] = ""
    right_delimiter: Annotated[
        str,
        Untemplated,
        Meta(description="Closing delimiter of template actions, instead of the engine's default."),
    ] = ""
    data: Annotated[
        dict[str, Any],
        TemplatedKeys,
        PublishDigest,
        Meta(description="Data for the templates, instead of the manifest's data."),
    ] = {}
    purge: Annotated[
        bool, Meta(description="Remove files from the directory that were not rendered from the source.")
    ] = False
    post: Annotated[
        list[dict[str, str]],
        RunsCommand,
        Meta(
            description="Commands to run on rendered files, each as `glob: command`. The glob is matched against the file name. "
            "`{}` in the command is replaced with the file; without `{}` the file is the last argument."
        ),
    ] = []
    timeout: Annotated[
        str,
        Extension,
        Meta(
            description="Time limit for each `post` command, such as `30s` or `5m`. A command that exceeds it is killed and "
            f"fails. Default: `{DEFAULT_TIMEOUT}`."
        ),
    ] = ""
    diff: ShowLines = False

    @property
    def post_limit_s(self) -> float:
        """The time limit of each `post` command, in seconds."""
        return parse_duration(self.timeout or DEFAULT_TIMEOUT)


class ScaffoldMetadata(Struct, kw_only=True, omit_defaults=True):
    """
    The differences between the directory and the rendered files, with absolute, sorted paths.

    Attributes:
        name: The path of the directory.
        provider: The provider that read the state.
        target_exists: Whether the directory exists.
        changed: Files that must be written.
        purged: Files that do not belong to the scaffold. Only `purge` removes them.
        stable: Files that already are in the desired state.
        engine: The template engine.
        failing: Files whose `post` command failed earlier on the same content. The command was not run again.
        reason: The reason why nothing is rendered; "" if at least one file is.
    """

    name: str
    provider: str
    target_exists: bool = False
    changed: list[str] = []
    purged: list[str] = []
    stable: list[str] = []
    engine: str = ""
    failing: list[str] = []
    reason: str = ""


class ScaffoldState(CommonState, kw_only=True):
    """
    The current state. `ensure` is as in Choria CCM, except that it is `absent` only if `absent` is desired and the directory does
    not exist.
    """

    metadata: ScaffoldMetadata
