"""What a scaffold resource may say, and what is found of it."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from ccm_agent.model.durations import parse_duration
from ccm_agent.model.resource import CommonProperties, CommonState

DELIMITERS = {"jet": ("[[", "]]"), "go": ("{{", "}}"), "jinja": ("{{", "}}")}
"""The engines, with the delimiters of each unless others are asked for."""
DEFAULT_ENGINE = "jet"
DEFAULT_TIMEOUT = "15m"
"""No formatter, check or encryption of one file takes so long: a command that does waits for what will not come."""


class ScaffoldProperties(CommonProperties, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A directory of files that are rendered from a directory of templates."""

    name: Annotated[str, Meta(description="Absolute path of the directory to render into.")]
    ensure: Annotated[str, Meta(description="`present` or `absent`.")] = ""
    source: Annotated[
        str, Meta(description="Directory of templates, absolute or relative to the manifest.")
    ] = ""
    engine: Annotated[
        str,
        Meta(
            description="Template engine: `jet` (the default), `go`, or `jinja`, which Choria CCM does not have."
        ),
    ] = ""
    skip_empty: Annotated[
        bool, Meta(description="Make no file of a template that renders to white space.")
    ] = False
    left_delimiter: Annotated[
        str, Meta(description="What opens an action in a template, in the place of the engine's own.")
    ] = ""
    right_delimiter: Annotated[
        str, Meta(description="What closes an action in a template, in the place of the engine's own.")
    ] = ""
    data: Annotated[
        dict[str, Any], Meta(description="What templates see as data, in the place of the manifest's.")
    ] = {}
    purge: Annotated[
        bool, Meta(description="Remove files in the directory that are not rendered from the source.")
    ] = False
    post: Annotated[
        list[dict[str, str]],
        Meta(
            description="Commands for rendered files, each an entry `glob: command`. The glob is matched with the file's name; "
            "`{}` in the command is the file, which is the last argument without it."
        ),
    ] = []
    timeout: Annotated[
        str,
        Meta(
            description=f"How long each command of `post` may take, such as `30s` or `5m`; then it is ended and has failed. "
            f"`{DEFAULT_TIMEOUT}` without it."
        ),
    ] = ""

    @property
    def post_limit_s(self) -> float:
        """How long each command of `post` may take."""
        return parse_duration(self.timeout or DEFAULT_TIMEOUT)


class ScaffoldMetadata(Struct, kw_only=True, omit_defaults=True):
    """
    How the directory compares with what is rendered. Paths are absolute and sorted.

    Attributes:
        name: Path of the directory.
        provider: The provider that looked.
        target_exists: The directory is there.
        changed: Files that are to be written.
        purged: Files that belong to nobody; only `purge` removes them.
        stable: Files that are right.
        engine: The template engine.
        failing: Files of which a `post` command failed when it last had this very content; it was not tried again.
        reason: Why nothing is rendered; "" when something is.
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
    """A scaffold as found; `ensure` is `absent` only where it is to be and its directory is gone, as in Choria CCM otherwise."""

    metadata: ScaffoldMetadata
