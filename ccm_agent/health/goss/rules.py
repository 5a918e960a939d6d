"""
Parse the rules of a goss file, and check that every kind, attribute and matcher exists.

    file:                       the kind
      /etc/motd:                the subject; an attribute of the kind (`path`) may name it instead
        exists: true            attributes: each is a matcher
        skip: false             options
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from ccm_agent.health.goss.gossfiles import GOSSFILE, gossfiles, read_mapping
from ccm_agent.health.goss.kinds import KINDS, GossType
from ccm_agent.health.goss.matchers import Matcher, have_patterns, parse_matcher
from ccm_agent.model.errors import PropertyError
from ccm_agent.model.suggestions import did_you_mean

COMMON_OPTIONS = frozenset({"skip", "title", "meta"})


class GossRule(Struct, frozen=True, kw_only=True):
    """
    The expectations about one subject.

    Attributes:
        kind: The kind of subject, such as "file".
        name: The rule's key.
        subject: The subject, such as a path or a package.
        wanted: Matchers by attribute. The first attribute shows whether the subject exists.
        options: All other keys, such as timeouts.
    """

    kind: GossType
    name: str
    subject: str
    wanted: Mapping[str, Matcher]
    options: Mapping[str, Any]

    @property
    def is_skipped(self) -> bool:
        """Whether the rule has `skip: true`."""
        return bool(self.options.get("skip"))


def parse_rules(raw: Any, *, is_strict: bool = False) -> list[GossRule]:
    """
    Parse rules and return them in their original order.

    Args:
        raw: A mapping of kinds, or its text. Referenced files must already be merged.
        is_strict: Refuse unknown kinds, which goss ignores next to known kinds, and allow references to unread files.

    Raises:
        PropertyError: There are no rules, or a rule is not valid. The message names that rule.
    """
    raw = read_mapping(raw)
    rules = []
    for name, things in raw.items():
        if name == GOSSFILE:
            _check_files(things, is_strict=is_strict)
            continue
        if not is_strict and (things is None or str(name) not in KINDS):
            continue
        kind = _kind(str(name))
        if not isinstance(things, dict):
            raise PropertyError(f"`{name}` of `goss_rules` must be a mapping from names to expectations")
        for thing, body in things.items():
            try:
                rules.append(_rule(kind, str(thing), body))
            except PropertyError as err:
                raise PropertyError(f"`goss_rules`, {name} `{thing}`: {err.message}") from err
    if not rules and not is_strict:
        raise PropertyError(f"found 0 tests: `goss_rules` has none of {', '.join(KINDS)}")
    return rules


def _check_files(files: Any, *, is_strict: bool) -> None:
    if not is_strict:
        raise PropertyError(f"the rules of `{GOSSFILE}` were not read")
    if not holds_templates(files):
        gossfiles(files, "")


def holds_templates(raw: Any) -> bool:
    """Whether any key or value of raw rules still contains a template."""
    if isinstance(raw, str):
        return "{{" in raw or "${" in raw
    if isinstance(raw, dict):
        return any(holds_templates(key) or holds_templates(value) for key, value in raw.items())
    return isinstance(raw, list) and any(map(holds_templates, raw))


def _kind(name: str) -> GossType:
    kind = KINDS.get(name)
    if kind is None:
        raise PropertyError(
            f"unknown kind `{name}` in `goss_rules`{did_you_mean(name, KINDS)}; known kinds: {', '.join(KINDS)}"
        )
    return kind


def _rule(kind: GossType, name: str, body: Any) -> GossRule:
    if not isinstance(body, dict):
        raise PropertyError("the expectation must be a mapping, such as {exists: true}")
    given = {kind.spellings.get(str(key), str(key)): value for key, value in body.items()}
    known = {*kind.attributes, *kind.options, *COMMON_OPTIONS, kind.subject}
    for key in given:
        if key not in known:
            raise PropertyError(f"there is no `{key}`{did_you_mean(key, known)}")
    if kind.required and kind.attributes[0] not in given:
        raise PropertyError(f"`{kind.attributes[0]}` is missing; it is checked first")
    wanted = {}
    for attribute in kind.attributes:
        if attribute in given and given[attribute] != []:  # an empty list expects nothing
            try:
                wanted[attribute] = _matcher(kind, attribute, given[attribute])
            except PropertyError as err:
                raise PropertyError(f"`{attribute}`: {err.message}") from err
    options = {key: given[key] for key in given if key in kind.options or key in COMMON_OPTIONS}
    _check_options(options)
    return GossRule(
        kind=kind, name=name, subject=str(given.get(kind.subject) or name), wanted=wanted, options=options
    )


def _matcher(kind: GossType, attribute: str, raw: Any) -> Matcher:
    if isinstance(raw, list) and attribute in kind.texts:
        return have_patterns(raw)
    return parse_matcher(raw)


def _check_options(options: Mapping[str, Any]) -> None:
    for key in ("timeout", "retry_count"):
        value = options.get(key, 0)
        if not isinstance(value, (int, float)) or isinstance(value, bool) or value < 0:
            raise PropertyError(f"`{key}` must be a number that is not negative")
    for key in ("skip", "allow-insecure", "no-follow-redirects"):
        if not isinstance(options.get(key, False), bool):
            raise PropertyError(f"`{key}` must be true or false")
    headers = options.get("request-headers", [])
    if not isinstance(headers, list) or not all(isinstance(one, str) and ": " in one for one in headers):
        raise PropertyError('`request-headers` must be a list of strings such as "Accept: text/html"')
