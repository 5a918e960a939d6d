"""Checks the properties of an edit. No I/O. `edited_files.decide` makes the decision."""

from __future__ import annotations

from ccm_agent.model.resource import ABSENT, PRESENT
from ccm_agent.resources.checks import check_each, refuse
from ccm_agent.resources.edit.model import BEGIN_OF_FILE, END_OF_FILE, Edit, EditProperties
from ccm_agent.resources.edited_files import check_path, check_validate
from ccm_agent.templates.regex import PatternError, compile_pattern

PATTERN_LENGTH = 4096
_OWN = ("line", "block", "begin", "end", "match", "multiple", "insert_after", "insert_before")


def check(wanted: EditProperties) -> None:
    """Refuse invalid properties."""
    check_each(wanted, check_path, check_validate, _check_edits, _check_own, _check_blocks)


def _check_edits(wanted: EditProperties) -> None:
    if not wanted.edits:
        return
    for field in _OWN:
        if getattr(wanted, field) not in (None, "", False):
            refuse(f"`{field}` cannot be used with `edits`: set it in each edit", field)
    if wanted.ensure == ABSENT:
        refuse("`ensure: absent` cannot be used with `edits`: set it in each edit", "ensure")
    places = [(edit, f"edits[{number}].") for number, edit in enumerate(wanted.edits)]
    check_each(wanted, *(lambda _, one=one: _check_one(*one) for one in places))


def _check_own(wanted: EditProperties) -> None:
    if not wanted.edits:
        edit = Edit(ensure=wanted.ensure or PRESENT, **{field: getattr(wanted, field) for field in _OWN})
        _check_one(edit, "")


def _check_one(edit: Edit, place: str) -> None:
    """Refuse an edit that is not possible in any file."""
    check_each(
        edit,
        lambda edit: _check_kind(edit, place),
        lambda edit: _check_line(edit, place),
        lambda edit: _check_block(edit, place),
        lambda edit: _check_anchors(edit, place),
        *(
            lambda edit, name=name: _check_pattern(edit, name, place)
            for name in ("match", "insert_after", "insert_before")
        ),
    )


def _check_kind(edit: Edit, place: str) -> None:
    if edit.ensure not in (PRESENT, ABSENT):
        refuse(f"`ensure` must be `present` or `absent`, not `{edit.ensure}`", f"{place}ensure")
    if edit.line is not None and edit.block is not None:
        refuse("`line` and `block` are mutually exclusive: make two edits", f"{place}block")
    if edit.block is None and edit.line is None and (edit.ensure == PRESENT or not edit.match):
        refuse("nothing to edit: set `line` or `block`", f"{place}line")
    if edit.block is not None and (edit.match or edit.multiple):
        refuse("`match` requires `line`; a `block` is found by its `begin` and `end` lines", f"{place}match")
    if edit.block is None and (edit.begin or edit.end):
        refuse("`begin` and `end` require `block`", f"{place}begin")
    if edit.multiple and not edit.match:
        refuse(
            "`multiple` requires `match`",
            f"{place}multiple",
        )


def _check_line(edit: Edit, place: str) -> None:
    if edit.line is not None:
        _check_single(edit.line, "line", place)


def _check_single(text: str, name: str, place: str) -> None:
    if not text.strip():
        refuse(f"`{name}` is empty", f"{place}{name}")
    if any(one in text for one in "\n\r\0"):
        refuse(
            f"`{name}` contains a line break or a NUL character: use `block` for several lines",
            f"{place}{name}",
        )


def _check_block(edit: Edit, place: str) -> None:
    if edit.block is None:
        return
    for name in ("begin", "end"):
        if marker := getattr(edit, name):
            _check_single(marker, name, place)
    if edit.begin and edit.begin == edit.end:
        refuse("`begin` and `end` must differ", f"{place}end")
    if "\0" in edit.block:
        refuse("`block` contains a NUL character", f"{place}block")


def _check_anchors(edit: Edit, place: str) -> None:
    if edit.insert_after and edit.insert_before:
        refuse("`insert_after` and `insert_before` are mutually exclusive", f"{place}insert_before")
    if edit.ensure == ABSENT and (edit.insert_after or edit.insert_before):
        refuse(
            "`insert_after` and `insert_before` cannot be used with `ensure: absent`",
            f"{place}insert_after",
        )


def _check_pattern(edit: Edit, name: str, place: str) -> None:
    pattern = getattr(edit, name)
    if not pattern or (name, pattern) in (("insert_after", END_OF_FILE), ("insert_before", BEGIN_OF_FILE)):
        return
    if len(pattern) > PATTERN_LENGTH:
        refuse(f"`{name}` is too long: at most {PATTERN_LENGTH} characters", f"{place}{name}")
    try:
        compile_pattern(pattern)
    except PatternError as err:
        refuse(f"`{name}` is not a regular expression: {err}", f"{place}{name}")


def _check_blocks(wanted: EditProperties) -> None:
    """Refuse markers that would not identify a block in the file."""
    seen: set[str] = set()
    for number, edit in enumerate(wanted.changes):
        if edit.block is None:
            continue
        place = f"edits[{number}]." if wanted.edits else ""
        if {edit.begin, edit.end} & seen:
            refuse(
                f"two blocks have the same line `{edit.begin}`: each needs a different `begin` and `end`",
                f"{place}begin",
            )
        seen |= {edit.begin, edit.end}
        for line in edit.block.split("\n"):
            if line.removesuffix("\r") in (edit.begin, edit.end):
                refuse("the block contains its own `begin` or `end` line", f"{place}block")
