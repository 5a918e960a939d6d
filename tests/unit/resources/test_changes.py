"""What an event may show of a file's change."""

from __future__ import annotations

import difflib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm_agent.model.resource_diff import ContentInfo, FileDiff
from ccm_agent.model.secret import Masker
from ccm_agent.resources.changes import FileChange, TextLimits, file_diff, private_paths
from ccm_agent.testing.files import FakeFiles


def shown(
    old: str | bytes, new: str | bytes, *secrets: str, shows_private: bool = False, **more: bool
) -> FileDiff:
    before, after = (one.encode() if isinstance(one, str) else one for one in (old, new))
    change = FileChange(
        path="/etc/app",
        before=before,
        after=after,
        old=ContentInfo(size_bytes=len(before), sha256="a"),
        new=ContentInfo(size_bytes=len(after), sha256="b"),
        **more,
    )
    return file_diff(change, Masker(secrets).text, shows_private=shows_private)


def test_a_changed_line_is_shown_with_the_lines_around_it() -> None:
    old = "".join(f"{number}\n" for number in range(1, 21))

    diff = shown(old, old.replace("10\n", "ten\n"))

    assert diff == FileDiff(
        path="/etc/app",
        text="@@ -7,7 +7,7 @@\n 7\n 8\n 9\n-10\n+ten\n 11\n 12\n 13\n",
        added=1,
        removed=1,
    )


def test_a_missing_newline_at_the_end_is_named() -> None:
    diff = shown("a", "a\n")

    assert diff.text == "@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n"


@given(st.lists(st.sampled_from("abc")), st.lists(st.sampled_from("abc")))
def test_the_diff_is_the_unified_diff_of_both_texts(old: list[str], new: list[str]) -> None:
    before, after = ("".join(f"{line}\n" for line in lines) for lines in (old, new))

    diff = shown(before, after)

    lines = diff.text.splitlines()
    kept = [line[1:] for line in lines if line[0] == " "]
    assert diff.removed == sum(line[0] == "-" for line in lines)
    assert diff.added == sum(line[0] == "+" for line in lines)
    assert len(old) - diff.removed == len(new) - diff.added >= len(kept)
    assert bool(diff.text) is (old != new)
    if old and new and old[0] != new[0] and old[-1] != new[-1]:
        assert lines == list(difflib.unified_diff(old, new, lineterm=""))[2:]


def test_thousands_of_different_lines_are_replaced_without_matching_them() -> None:
    old, new = ("".join(f"{word} {number}\n" for number in range(5000)) for word in ("old", "new"))

    diff = shown(f"same\n{old}", f"same\n{new}")

    assert (diff.added, diff.removed) == (5000, 5000)
    assert diff.text.startswith("@@ -2,5000 +2,5000 @@\n-old 0\n")


def test_a_secret_is_masked_and_removed_lines_of_its_file_are_hidden() -> None:
    old = "user=app\npassword=former-secret\n"
    new = "user=app\npassword=correct-horse\n"

    diff = shown(old, new, "correct-horse")

    assert diff.text == "@@ -1,2 +1,2 @@\n user=app\n-***\n+password=***\n"


def test_a_change_within_masked_values_is_named() -> None:
    diff = shown("password=one-secret\n", "password=two-secret\n", "one-secret", "two-secret")

    assert (diff.text, diff.why) == ("", "only masked values differ")


def test_of_a_private_file_lines_are_counted() -> None:
    diff = shown("a\nb\n", "a\nc\nd\n", is_private=True)

    assert diff == FileDiff(
        path="/etc/app", form="lines", added=2, removed=1, why="not all users can read the file"
    )


def test_a_private_file_is_shown_on_request() -> None:
    diff = shown("a\n", "b\n", is_private=True, shows_private=True)

    assert diff.text == "@@ -1 +1 @@\n-a\n+b\n"


@pytest.mark.parametrize("content", [b"\0elf", b"\xff\xfe"])
def test_binary_content_is_shown_by_size_and_digest(content: bytes) -> None:
    diff = shown("a\n", content)

    assert diff == FileDiff(
        path="/etc/app",
        form="binary",
        before=ContentInfo(size_bytes=2, sha256="a"),
        after=ContentInfo(size_bytes=len(content), sha256="b"),
    )


def test_digests_of_private_binary_content_are_not_shown() -> None:
    diff = shown("a\n", b"\0", is_private=True)

    assert diff == FileDiff(path="/etc/app", form="binary")


def test_lines_over_the_limit_are_left_out_and_counted() -> None:
    limits = TextLimits(lines=3)

    first = limits.fit(shown("", "1\n2\n3\n4\n"))
    second = limits.fit(shown("", "x\n"))

    assert (first.text, first.left_out) == ("@@ -0,0 +1,4 @@\n+1\n+2\n", 2)
    assert (second.text, second.left_out, second.added) == ("", 2, 1)


def test_a_long_text_is_cut_at_the_end_of_a_line() -> None:
    diff = TextLimits(size_bytes=30).fit(shown("", "äääää\nöööööööööö\n"))

    assert (diff.text, diff.left_out) == ("@@ -0,0 +1,2 @@\n+äääää\n", 1)


@pytest.mark.parametrize(
    ("file_mode", "directory_mode", "new_mode", "is_private"),
    [
        pytest.param(0o644, 0o755, 0o644, False, id="everyone reads it"),
        pytest.param(0o640, 0o755, 0o644, True, id="the old file is private"),
        pytest.param(0o644, 0o755, 0o600, True, id="the new file is private"),
        pytest.param(0o644, 0o700, 0o644, True, id="other users cannot enter the directory"),
    ],
)
async def test_whether_a_file_is_private(
    file_mode: int, directory_mode: int, new_mode: int, is_private: bool
) -> None:
    files = FakeFiles()
    files.put_directory("/d", mode=directory_mode)
    files.put("/d/a", "x", mode=file_mode)

    assert await private_paths(files, ["/d/a", "/d/new"], new_mode) == {
        "/d/a": is_private,
        "/d/new": is_private and file_mode == 0o644,
    }


async def test_a_path_with_a_symlink_is_private() -> None:
    files = FakeFiles()
    files.put("/secret/sub/a", "x")
    files.put_symlink("/d", "secret/sub")
    files.put_symlink("/a", "secret/sub/a")

    assert await private_paths(files, ["/d/a", "/a"]) == {"/d/a": True, "/a": True}
