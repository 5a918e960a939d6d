"""Lines and blocks in files of this host, through the files port."""

from __future__ import annotations

from ccm_agent.model.ports import Files, Runner
from ccm_agent.resources.edit.lines import edit_content
from ccm_agent.resources.edit.model import EditProperties
from ccm_agent.resources.file_editor import FileEditor

LIMIT_BYTES = 16 << 20


class PosixEdit(FileEditor[EditProperties]):
    """
    The provider for Unix-like systems.

    Args:
        files, runner: The ports.
    """

    def __init__(self, files: Files, runner: Runner) -> None:
        super().__init__(files, runner, "edit", _change, LIMIT_BYTES)


def _change(wanted: EditProperties, content: bytes) -> bytes:
    return edit_content(content, wanted.changes)
