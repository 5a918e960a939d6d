"""Lines and blocks in texts: what changes, and what stays byte by byte."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccm_agent.model.errors import FileError
from ccm_agent.resources.edit.lines import edit_content
from ccm_agent.resources.edit.model import Edit

BLOCK = Edit(block="x\ny\n", begin="# b", end="# e")
NO_ROOT = Edit(line="root no", match=r"^#?\s*root\b")


@pytest.mark.parametrize(
    ("content", "edit", "want"),
    [
        pytest.param(b"a\n", Edit(line="b"), b"a\nb\n", id="a line is appended"),
        pytest.param(b"a\nb\nc\n", Edit(line="b"), b"a\nb\nc\n", id="a line that is there stays"),
        pytest.param(b"", Edit(line="b"), b"b\n", id="an empty file gets a newline"),
        pytest.param(b"a", Edit(line="b"), b"a\nb", id="a missing final newline stays missing"),
        pytest.param(b"a\r\nc\r\n", Edit(line="b"), b"a\r\nc\r\nb\r\n", id="CRLF"),
        pytest.param(b"a\r\nc\r\nd", Edit(line="b"), b"a\r\nc\r\nd\r\nb", id="CRLF without final newline"),
        pytest.param(b"a\r\nb\nc\n", Edit(line="d"), b"a\r\nb\nc\nd\n", id="mixed line endings stay"),
        pytest.param(b"a\r\n", Edit(line="a"), b"a\r\n", id="a line is found with any ending"),
        pytest.param(b"\xff\xe9\n", Edit(line="b"), b"\xff\xe9\nb\n", id="bytes that are not UTF-8 stay"),
        pytest.param(b"\xef\xbb\xbfroot yes\n", NO_ROOT, b"\xef\xbb\xbfroot no\n", id="a byte order mark"),
        pytest.param(b"a\n#root yes\nc\n", NO_ROOT, b"a\nroot no\nc\n", id="a line that matches is replaced"),
        pytest.param(b"a\nroot no\n", NO_ROOT, b"a\nroot no\n", id="a line that matches and is right stays"),
        pytest.param(b"a\n", NO_ROOT, b"a\nroot no\n", id="without a match the line is appended"),
        pytest.param(
            b"root a\nb\nroot c\n",
            Edit(line="root no", match="^root", multiple=True),
            b"root no\nb\nroot no\n",
            id="multiple lines are replaced",
        ),
        pytest.param(
            b"a\nb\na\n", Edit(line="x", insert_after="^a"), b"a\nb\na\nx\n", id="after the last match"
        ),
        pytest.param(
            b"b\na\nb\na\n", Edit(line="x", insert_before="^a"), b"b\nx\na\nb\na\n", id="before the first"
        ),
        pytest.param(b"a\n", Edit(line="x", insert_before="BOF"), b"x\na\n", id="at the begin"),
        pytest.param(b"", Edit(line="x", insert_before="BOF"), b"x\n", id="at the begin of an empty file"),
        pytest.param(b"a\n", Edit(line="x", insert_after="EOF"), b"a\nx\n", id="at the end"),
        pytest.param(b"a\nb\na\n", Edit(ensure="absent", line="a"), b"b\n", id="all equal lines go"),
        pytest.param(b"a1\nb\na2\n", Edit(ensure="absent", match="^a"), b"b\n", id="all lines that match go"),
        pytest.param(b"a", Edit(ensure="absent", line="a"), b"", id="the only line goes"),
        pytest.param(
            b"a\n\nb", Edit(ensure="absent", line="b"), b"a\n\n", id="an empty line stays the last one"
        ),
        pytest.param(b"a\n", BLOCK, b"a\n# b\nx\ny\n# e\n", id="a block is appended"),
        pytest.param(b"# b\nz\n# e\nc\n", BLOCK, b"# b\nx\ny\n# e\nc\n", id="a block is replaced"),
        pytest.param(b"# b\r\nx\r\ny\r\n# e\r\n", BLOCK, b"# b\r\nx\r\ny\r\n# e\r\n", id="a block in CRLF"),
        pytest.param(b"a\n", Edit(block="", begin="b", end="e"), b"a\nb\ne\n", id="an empty block"),
        pytest.param(
            b"a\n", Edit(block="x", begin="b", end="e", insert_before="a"), b"b\nx\ne\na\n", id="before"
        ),
        pytest.param(
            b"a\n# b\nz\n# e\nc",
            Edit(ensure="absent", block="", begin="# b", end="# e"),
            b"a\nc",
            id="a block goes with its markers",
        ),
        pytest.param(
            b"a\n", Edit(ensure="absent", block="", begin="b", end="e"), b"a\n", id="no block to go"
        ),
    ],
)
def test_a_content_is_edited_once(content: bytes, edit: Edit, want: bytes) -> None:
    assert edit_content(content, [edit]) == want
    assert edit_content(want, [edit]) == want


@pytest.mark.parametrize(
    ("content", "edit", "message"),
    [
        (
            b"root a\nroot b\n",
            NO_ROOT,
            "`match` matches 2 lines (lines 1, 2): make it match one, or set `multiple: true`",
        ),
        (
            b"a\n",
            Edit(line="x", insert_after="^b"),
            "no line matches `insert_after`, so the position of the new line is unknown",
        ),
        (
            b"",
            Edit(line="x", insert_before="."),
            "no line matches `insert_before`, so the position of the new line is unknown",
        ),
        (b"# b\n", BLOCK, "line 1 is the `begin` line of the block, but the matching `end` line is missing"),
        (b"# e\n", BLOCK, "line 1 is the `end` line of the block, but the matching `begin` line is missing"),
        (
            b"# e\n# b\n",
            BLOCK,
            "line 2 is the `begin` line of the block, but the matching `end` line is missing",
        ),
        (b"# b\n# b\n# e\n", BLOCK, "the `begin` line of the block occurs 2 times (lines 1, 2)"),
        (b"# b\n# e\n# e\n", BLOCK, "the `end` line of the block occurs 2 times (lines 2, 3)"),
        (b"a\0b", Edit(line="x"), "it contains NUL bytes, so it is not text (UTF-16 is not supported)"),
        (
            "a\n".encode("utf-16"),
            Edit(line="x"),
            "it contains NUL bytes, so it is not text (UTF-16 is not supported)",
        ),
    ],
)
def test_an_edit_that_is_not_possible_is_an_error(content: bytes, edit: Edit, message: str) -> None:
    with pytest.raises(FileError) as caught:
        edit_content(content, [edit])

    assert caught.value.message == message


def test_an_error_names_the_edit() -> None:
    with pytest.raises(FileError) as caught:
        edit_content(b"a\n", [Edit(line="b"), Edit(line="c", insert_after="^d")])

    assert (
        caught.value.message
        == "edits[1]: no line matches `insert_after`, so the position of the new line is unknown"
    )


LINES = st.lists(st.sampled_from(["a", "b", "#a", "# b", "# e", "", "\xe9"]), max_size=6)
EDITS = st.sampled_from(
    [
        Edit(line="a"),
        Edit(line="a", match="a"),
        Edit(line="a", match="a", multiple=True),
        Edit(line="z", insert_before="BOF"),
        Edit(line="z", insert_after="^a"),
        Edit(ensure="absent", line="a"),
        Edit(ensure="absent", match="^#"),
        BLOCK,
        Edit(ensure="absent", block="", begin="# b", end="# e"),
    ]
)


@given(LINES, st.sampled_from(["\n", "\r\n"]), st.booleans(), EDITS)
@settings(max_examples=400)
def test_an_edited_content_is_stable_and_keeps_its_form(
    lines: list[str], ending: str, is_ended: bool, edit: Edit
) -> None:
    content = (ending.join(lines) + (ending if is_ended and lines else "")).encode("latin-1")
    try:
        after = edit_content(content, [edit])
    except FileError:
        return

    assert edit_content(after, [edit]) == after
    if ending == "\n":
        assert b"\r" not in after
    if content and after and after.split(ending.encode())[-2:] != [b"", b""]:
        assert after.endswith(b"\n") == content.endswith(b"\n")


def test_a_pattern_that_backtracks_elsewhere_is_quick() -> None:
    content = b"a" * 100_000 + b"\n"

    assert edit_content(content, [Edit(line="b", match="^(a+)+$")]) == b"b\n"
