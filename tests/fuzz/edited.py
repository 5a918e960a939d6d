"""Fuzz files of a host that are edited: any user or program may have written them."""

from __future__ import annotations

from ccm_agent.model.errors import FileError
from ccm_agent.resources.config.model import FORMATS, ConfigProperties
from ccm_agent.resources.config.providers.posix import change_content
from ccm_agent.resources.edit.lines import edit_content
from ccm_agent.resources.edit.model import Edit
from tests.fuzz.target import Target

_EDITS = [
    Edit(line="b", match="^b", multiple=True),
    Edit(line="c", insert_before="BOF"),
    Edit(block="x\n", begin="# b", end="# e"),
]


def lines(data: bytes) -> object:
    """Lines and blocks; an edited file stays as it is."""
    after = edit_content(data, _EDITS)
    if edit_content(after, _EDITS) != after:
        raise AssertionError("a second edit changed the file again")
    return after


def _keys(name: str, data: bytes) -> object:
    wanted = ConfigProperties(name=f"/etc/a.{name}", values={"a.b": 1, "c": "x"})
    after = change_content(wanted, data)
    try:
        again = change_content(wanted, after)
    except FileError as err:
        raise AssertionError(f"a changed file cannot be read: {err}") from err
    if again != after:
        raise AssertionError("a second change changed the file again")
    return after


_SAMPLES = {
    "ini": b"; a\nc = 1\n[a]\nb=2\n",
    "json": b'{"a": {"b": 2, "d": [1, null]}, "c": "\\u00e9"}\n',
    "toml": b"# a\nc = 'x'\n[a]\nb = 2 # b\n[[d]]\ne = 1979-05-27T07:32:00Z\n",
    "yaml": b"# a\n---\na:\n  b: 2 # b\nc: &x 'x'\nd: [*x, {e: !f 1}]\ng: |\n  h\n",
}

EDITED = [
    Target("edited lines", lines, [b"a\r\n\xffb\r\n# b\r\nz\r\n# e\r\nlast"]),
    *(
        Target(f"keys of {name}", lambda data, name=name: _keys(name, data), [_SAMPLES[name]])
        for name in FORMATS
    ),
]
