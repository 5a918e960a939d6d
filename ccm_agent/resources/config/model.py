"""Properties of config resources."""

from __future__ import annotations

import posixpath
from typing import Annotated, Any

from msgspec import Meta

from ccm_agent.model.formats.field_rules import PublishDigest
from ccm_agent.resources.edited_files import EditedProperties

FORMATS = ("ini", "json", "toml", "yaml")
EXTENSIONS = {
    ".cfg": "ini",
    ".cnf": "ini",
    ".conf": "ini",
    ".ini": "ini",
    ".json": "json",
    ".toml": "toml",
    ".yaml": "yaml",
    ".yml": "yaml",
}


class ConfigProperties(EditedProperties, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Keys of a configuration file."""

    format: Annotated[
        str, Meta(description="`ini`, `json`, `toml` or `yaml`. Default: from the extension of the file.")
    ] = ""
    key: Annotated[
        str | list[str],
        Meta(
            description="Path of the value: `server.port`, or a list of names; names with dots in double quotes. In an ini file "
            "the first name is the section. A number is a list index."
        ),
    ] = ""
    value: Annotated[
        Any, PublishDigest, Meta(description="The value, of any type that the format supports.")
    ] = None
    values: Annotated[
        dict[str, Any],
        PublishDigest,
        Meta(description="Several keys and values, instead of `key` and `value`."),
    ] = {}

    @property
    def file_format(self) -> str:
        """The format of the file; "" if it is unknown."""
        return self.format or EXTENSIONS.get(posixpath.splitext(self.file)[1].lower(), "")
