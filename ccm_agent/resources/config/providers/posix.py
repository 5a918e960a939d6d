"""Keys of configuration files of this host, through the files port."""

from __future__ import annotations

from typing import Any

from ccm_agent.model.errors import DocumentError, FileError
from ccm_agent.model.ports import Files, Runner
from ccm_agent.resources.config.model import ConfigProperties
from ccm_agent.resources.config.resource import changes_of
from ccm_agent.resources.file_editor import FileEditor

LIMIT_BYTES = 4 << 20
SLOW_LIMIT_BYTES = 256 << 10
"""The maximum file size for formats whose libraries take seconds for larger files."""
_MARK = "\ufeff"


class PosixConfig(FileEditor[ConfigProperties]):
    """
    The provider for Unix-like systems.

    Args:
        files, runner: The ports.
    """

    def __init__(self, files: Files, runner: Runner) -> None:
        super().__init__(files, runner, "config", change_content, LIMIT_BYTES)


def change_content(wanted: ConfigProperties, content: bytes) -> bytes:
    """Return the content with the desired values of a resource."""
    try:
        changes = changes_of(wanted)
    except DocumentError as err:
        raise FileError(err.message) from err
    name = wanted.file_format
    if not changes or not name:
        return content  # `ccm status` provides only the file's name
    text = _decoded(name, content)
    if name == "ini":
        from ccm_agent.resources.config.formats.ini_text import change_ini

        return change_ini(text, changes).encode("utf-8", "surrogateescape")
    mark, text = text[: text.startswith(_MARK)], text.removeprefix(_MARK)
    if name == "json":
        from ccm_agent.resources.config.formats.json_text import change_json

        return _written(mark + change_json(text, changes))
    if name == "toml":
        from ccm_agent.resources.config.formats.toml_text import change_toml as change
    else:
        from ccm_agent.resources.config.formats.yaml_text import change_yaml as change
    ending = "\r\n" if "\r\n" in text else "\n"
    after = change(text.replace("\r\n", "\n"), changes)
    return _written(mark + (after.replace("\n", ending) if ending != "\n" else after))


def read_values(name: str, content: bytes) -> Any:
    """
    Return the values in a file of a format: of an ini file by their paths, of others as nested mappings, with the formatting data
    of `read_yaml`.

    Raises:
        FileError: The file cannot be read in this format.
    """
    text = _decoded(name, content)
    if name == "ini":
        from ccm_agent.resources.config.formats.ini_text import read_ini

        return read_ini(text)
    text = text.removeprefix(_MARK)
    if name == "json":
        from ccm_agent.resources.config.formats.json_text import read_json

        return read_json(text)
    if name == "toml":
        from ccm_agent.resources.config.formats.toml_text import read_toml as read
    else:
        from ccm_agent.resources.config.formats.yaml_text import read_yaml as read
    return read(text.replace("\r\n", "\n"))


def _decoded(name: str, content: bytes) -> str:
    text = content.decode("utf-8", "surrogateescape")
    if "\0" in text:
        raise FileError("it contains NUL bytes, so it is not text")
    if name != "json" and text.count("\r\n") not in (0, text.count("\n")):
        raise FileError("some of its lines end with CRLF and some with LF")
    if name != "ini" and any("\udc80" <= one <= "\udcff" for one in text):
        raise FileError("it is not UTF-8")
    if name in ("toml", "yaml") and len(content) > SLOW_LIMIT_BYTES:
        raise FileError(f"it has {len(content)} bytes; the limit for {name} files is {SLOW_LIMIT_BYTES}")
    return text


def _written(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as err:
        raise FileError("a value contains an unpaired surrogate, which cannot be written to a file") from err
