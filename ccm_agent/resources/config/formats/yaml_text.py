"""Changes keys of a YAML text with ruamel.yaml, which keeps comments, order and quotes."""

from __future__ import annotations

import io
import re
from collections import Counter
from typing import Any

from ccm_agent.model.errors import FileError
from ccm_agent.resources.config.keys import KeyChange, is_same

_WIDTH = 1 << 20
"""The maximum line width, which is so large that lines are never wrapped."""
_VALUES_LIMIT = 100_000
_MERGES_LIMIT = 4_000_000
"""The maximum product of merge keys and characters. The library copies all keys of a mapping for each merge."""
_START = re.compile(r"^---(?:[ \t]*+\n|(?=[ \t]|\Z))", re.MULTILINE)
"""The `---` at the beginning of a document, with its newline if nothing else is on the line."""


def change_yaml(text: str, changes: list[KeyChange]) -> str:
    """Return the text with the changes. Raises FileError if a change is not possible."""
    return _edited(text, changes)[0]


def read_yaml(text: str) -> Any:
    """Return the values of a text, with ruamel.yaml's formatting data. Raises FileError if it is not a YAML document."""
    document = _edited(text, [])[1]
    if "*" in text:
        from ruamel.yaml import YAML

        if _contains_itself(YAML(typ="rt").compose(_head(text)[1]), set(), set()):
            raise FileError("it has an alias inside its own anchor")
    return document


def _contains_itself(node: Any, above: set[int], checked: set[int]) -> bool:
    """Whether a node is a part of itself. ruamel.yaml's values have null there."""
    parts = getattr(node, "value", None)
    if id(node) in above or not isinstance(parts, list) or id(node) in checked:
        return id(node) in above
    above.add(id(node))
    pairs = (part if isinstance(part, tuple) else (part,) for part in parts)
    found = any(_contains_itself(one, above, checked) for pair in pairs for one in pair)
    above.remove(id(node))
    checked.add(id(node))
    return found


def _edited(text: str, changes: list[KeyChange]) -> tuple[str, Any]:
    """Return the text with the changes, and its document."""
    try:
        from ruamel.yaml import YAML
        from ruamel.yaml.error import YAMLError
    except ImportError as err:
        raise FileError(
            "yaml requires the Python package ruamel.yaml; install it with `pip install 'ccm-fleet[config]'`"
        ) from err
    if any(one in text for one in "\r\x85\u2028\u2029"):
        raise FileError("it contains line breaks other than newlines")
    if (text.count("<<") + text.count("merge")) * len(text) > _MERGES_LIMIT:
        raise FileError("it has too many merge keys (`<<`) for its size")
    head, text = _head(text)
    form = YAML(typ="rt")
    form.preserve_quotes = True
    form.width = _WIDTH
    _keep_indent(form, text)
    try:
        document = form.load(text)
        if document is None:
            document = form.load("{}")
            document.fa.set_block_style()
        changed = [_change(document, change) for change in changes]
        if not any(changed):
            return head + text, document
        out = io.StringIO()
        form.dump(document, out)
        after = (f"{head}\n" if head and not head.endswith("\n") else head) + out.getvalue()
        if not is_same(plain(form.load(after)), plain(document)):
            raise FileError("it cannot be written without changing other values: edit it by hand")
    except RecursionError as err:
        raise FileError("it is nested too deeply") from err
    except (YAMLError, ValueError) as err:
        raise FileError(f"it is not YAML: {_reason(err, head.count(chr(10)))}") from err
    if _lacks_comments(head + text, after) and not any(change.is_removed for change in changes):
        raise FileError("this change would lose comments: edit it by hand")
    return after, document


def _reason(err: Exception, lines_before: int) -> str:
    """Return the reason why a text is not YAML. The reason does not contain values from the text."""
    mark = getattr(err, "problem_mark", None)
    where = f"line {mark.line + 1 + lines_before}: " if mark is not None else ""
    problem = getattr(err, "problem", None) or "a value is not valid"
    return where + ("a key occurs twice" if "duplicate key" in problem else problem)


def _head(text: str) -> tuple[str, str]:
    """Split a text before its first value, because the library drops all comments before the value."""
    start = _START.search(text)
    if start is None:
        begin = _first_line(text)
    elif _first_line(text) < start.start() or "\n%" in f"\n{text[: start.start()]}":
        raise FileError("it has several documents or directives; only a single document can be changed")
    elif not start[0].endswith("\n") and text[start.end() :].strip():
        raise FileError("its document begins on the line of `---`: put `---` on its own line")
    else:
        begin = start.end()
    return text[:begin], text[begin:]


def _first_line(text: str) -> int:
    """Return the position of the first line that is neither empty nor a comment."""
    at = 0
    while at < len(text) and (
        text[at] in "#\n" or not text[at : text.find("\n", at) + 1 or None].strip(" \t\n")
    ):
        end = text.find("\n", at)
        at = len(text) if end < 0 else end + 1
    return at


def _keep_indent(form: Any, text: str) -> None:
    """Set the indentation to that of the first nested mapping and the first nested list in the text."""
    mapping = dash = 0
    above = None
    for line in text.split("\n"):
        content = line.lstrip(" ")
        if not content or content.startswith("#"):
            continue
        indent = len(line) - len(content)
        if above is not None and content.startswith("- ") and indent >= above and not dash:
            dash = 1
            offset = indent - above
            form.sequence_dash_offset = offset
            form.sequence_indent = offset + len(content) - len(content[1:].lstrip(" "))
        elif above is not None and indent > above and not content.startswith("-") and not mapping:
            mapping = indent - above
        above = indent if content.rstrip().endswith(":") and not content.startswith("-") else None
    form.map_indent = mapping or 2


def _lacks_comments(before: str, after: str) -> bool:
    """Whether a comment line of the old text is missing in the new text."""
    counts = [
        Counter(line.strip() for line in text.split("\n") if line.lstrip()[:1] == "#")
        for text in (before, after)
    ]
    return bool(counts[0] - counts[1])


def _change(document: Any, change: KeyChange) -> bool:
    """Make one change. Return whether the change was needed."""
    place = document
    for number, name in enumerate(change.path):
        if number and getattr(getattr(place, "anchor", None), "value", None):
            raise FileError(
                f"the key `{change.shown}` is inside an anchor, whose value may be used elsewhere: edit it by hand"
            )
        is_last = number == len(change.path) - 1
        if isinstance(place, list):
            if not name.isdecimal() or int(name) >= len(place):
                raise FileError(
                    f"the key `{change.shown}`: `{name}` is not an index of a list of length {len(place)}"
                )
            key: Any = int(name)
        elif isinstance(place, dict):
            key = name
        else:
            raise FileError(f"the key `{change.shown}`: the value before `{name}` is not a mapping")
        is_there = isinstance(place, list) or key in place
        if change.is_removed and (is_last or not is_there):
            if is_there and isinstance(place, dict):
                del place[key]
            return is_there
        if is_last:
            if is_there and is_same(plain(place[key]), change.value):
                return False
            if not is_there:
                _keep_below(place, key, change.value)
            place[key] = change.value
            return True
        if not is_there:
            place[key] = {}
        place = place[key]
    return False


def _keep_below(place: Any, key: Any, value: Any) -> None:
    """Keep the comments after a mapping below the new key. The library attaches them to the mapping's last key."""
    from ruamel.yaml.tokens import CommentToken

    holder, last = place, next(reversed(place), None)
    while last is not None and isinstance(holder[last], dict | list) and holder[last]:
        holder = holder[last]
        last = len(holder) - 1 if isinstance(holder, list) else next(reversed(holder))
    if not hasattr(place, "ca") or not hasattr(holder, "ca"):
        return  # another change created this mapping, so it has no comments
    slot = 0 if isinstance(holder, list) else 2
    tokens: Any = (
        holder.ca.items.get(last) if last is not None and not isinstance(value, dict | list) else None
    )
    token = tokens[slot] if tokens and len(tokens) > slot else None
    if token is None or isinstance(token, list):
        return
    own, _, below = token.value.partition("\n")
    if below:
        place.ca.items[key] = [None, None, CommentToken(f"\n{below}", token.start_mark), None]
        tokens[slot] = CommentToken(f"{own}\n", token.start_mark) if own else None


def plain(value: Any, left: list[int] | None = None) -> Any:
    """Return the value without ruamel.yaml's formatting data. Aliases may make the value much larger than the text."""
    left = [_VALUES_LIMIT] if left is None else left
    left[0] -= 1
    if left[0] < 0:
        raise FileError(
            f"the value has more than {_VALUES_LIMIT} parts, aliases included, so it cannot be compared"
        )
    if isinstance(value, dict):
        return {key: plain(one, left) for key, one in value.items()}
    if isinstance(value, list):
        return [plain(one, left) for one in value]
    if type(value).__name__ == "ScalarBoolean":
        return bool(value)
    for kind in (int, float, str):
        if isinstance(value, kind) and not isinstance(value, bool):
            return kind(value)
    return value
