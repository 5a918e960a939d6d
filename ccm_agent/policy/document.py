"""The policy document, checked and ready for decisions."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from datetime import tzinfo
from typing import NoReturn, TypeVar

from msgspec import Struct

from ccm_agent.model.codec import as_text, convert_as, decode_document, locate
from ccm_agent.model.errors import DocumentError, Place, PropertyError
from ccm_agent.model.records.policy import (
    LOOK_ACTIONS,
    REGISTRATION_TYPE,
    RUN_ACTIONS,
    UNSIGNED_TYPE,
    Limits,
    PolicyDocument,
    PolicyRule,
)
from ccm_agent.model.suggestions import did_you_mean
from ccm_agent.policy.globs import path_glob, source_glob
from ccm_agent.policy.grant import CompiledLimits, LimitLayer, allowed_types
from ccm_agent.policy.hours import Hours, parse_hours

T = TypeVar("T")
Path = tuple[str | int, ...]


class CompiledRule(Struct, frozen=True, kw_only=True):
    """
    A rule of the policy, ready for decisions.

    Attributes:
        name, signers, roles, max_mode: As written.
        place: File and line of the rule.
        actions: Its actions, with `all` expanded.
        is_allow: Whether the rule allows the actions.
        hours: The hours in which the rule matches; empty for always.
        written_hours: The hours as written.
        layer: The limits for resources.
        withheld: The data that is omitted from events for the requester.
    """

    name: str
    place: Place
    signers: tuple[str, ...]
    roles: tuple[str, ...]
    actions: frozenset[str]
    is_allow: bool
    hours: tuple[Hours, ...]
    written_hours: tuple[str, ...]
    max_mode: str
    layer: LimitLayer
    withheld: frozenset[str]

    @property
    def title(self) -> str:
        """Format for a sentence: the rule `web team` (policy.yaml:12)."""
        return self.layer.title


class Policy(Struct, frozen=True, kw_only=True):
    """
    The policy of one node.

    Attributes:
        source: The file of the policy.
        digest: SHA-256 (hex) of the file.
        is_default_allow: Whether requests without a matching rule are allowed.
        zone: The time zone of all hours.
        zone_name: The time zone as written.
        max_mode: "plan" if no request over the bus may change anything.
        layer: The limits for all requests over the bus.
        rules: In the order of evaluation.
        withheld: The data that is omitted from all events over the bus.
    """

    source: str
    digest: str
    is_default_allow: bool
    zone: tzinfo
    zone_name: str
    max_mode: str
    layer: LimitLayer
    rules: tuple[CompiledRule, ...]
    withheld: frozenset[str] = frozenset()


def parse_policy(data: bytes, source: str, types: Collection[str]) -> Policy:
    """
    Parse the policy in a document.

    Args:
        data: The document, YAML or JSON.
        source: The file of the policy, for errors.
        types: The known resource types.

    Raises:
        DocumentError: The document is not valid; the error includes file and line. Examples are an unknown key,
            type, day or time zone, a pattern that would never match, or two rules with the same name.
    """
    text = as_text(data, source)
    value = decode_document(text, source)
    if value is None:
        raise DocumentError("the policy is empty: write at least `default: deny`", place=Place(source))
    document = convert_as(value, PolicyDocument, source, text)
    return _Compiler(text, source, types).policy(document, hashlib.sha256(data).hexdigest())


class _Compiler:
    def __init__(self, text: str, source: str, types: Collection[str]) -> None:
        self._text = text
        self._source = source
        self._types = {*types, REGISTRATION_TYPE, UNSIGNED_TYPE}

    def policy(self, document: PolicyDocument, digest: str) -> Policy:
        names: set[str] = set()
        rules = []
        for number, rule in enumerate(document.rules):
            at: Path = ("rules", number)
            if rule.name in names:
                self._fail(f"two rules are named `{rule.name}`; names must be unique", (*at, "name"))
            names.add(rule.name)
            rules.append(self._rule(rule, at))
        return Policy(
            source=self._source,
            digest=digest,
            is_default_allow=document.default == "allow",
            zone=self._zone(document.time_zone),
            zone_name=document.time_zone,
            max_mode=document.max_mode,
            layer=self._layer("", (), None, document.forbid),
            rules=tuple(rules),
            withheld=frozenset(document.withhold),
        )

    def _rule(self, rule: PolicyRule, at: Path) -> CompiledRule:
        if bool(rule.allow) == bool(rule.deny):
            what = "both `allow` and `deny`" if rule.allow else "neither `allow` nor `deny`"
            self._fail(f"the rule `{rule.name}` has {what}: a rule needs one of them", at)
        if rule.deny and (rule.only or rule.forbid or rule.withhold or rule.max_mode != "apply"):
            fields = "`only`, `forbid`, `withhold` and `max_mode`"
            self._fail(f"the rule `{rule.name}` denies, so {fields} have no effect in it; remove them", at)
        for field, names in (("signers", rule.signers), ("roles", rule.roles)):
            for number, name in enumerate(names):
                if not name.strip():
                    self._fail("a name is missing here", (*at, field, number))
        written = (rule.hours,) if isinstance(rule.hours, str) else tuple(rule.hours)
        written = tuple(one for one in written if one)
        return CompiledRule(
            name=rule.name,
            place=locate(self._text, at, self._source),
            signers=tuple(rule.signers),
            roles=tuple(rule.roles),
            actions=_written_out(rule.allow or rule.deny),
            is_allow=bool(rule.allow),
            hours=tuple(self._each(written, parse_hours, (*at, "hours"))),
            written_hours=written,
            max_mode=rule.max_mode,
            layer=self._layer(rule.name, at, rule.only, rule.forbid),
            withheld=frozenset(rule.withhold),
        )

    def _layer(self, rule: str, at: Path, only: Limits | None, forbid: Limits | None) -> LimitLayer:
        place = locate(self._text, at if rule else ("forbid",), self._source)
        return LimitLayer(
            rule=rule,
            place=place,
            only=self._limits(only, (*at, "only"), is_only=True) if only is not None else None,
            forbid=self._limits(forbid, (*at, "forbid"), is_only=False) if forbid is not None else None,
        )

    def _limits(self, limits: Limits, at: Path, *, is_only: bool) -> CompiledLimits:
        if limits == Limits():
            self._fail(f"`{at[-1]}` is empty: add a value, or remove it", at)
        for number, name in enumerate(limits.types):
            if name not in self._types:
                hint = did_you_mean(name, self._types) or f"; known types: {', '.join(sorted(self._types))}"
                self._fail(f"unknown resource type `{name}`{hint}", (*at, "types", number))
        return CompiledLimits(
            types=allowed_types(limits) if is_only else frozenset(limits.types),
            paths=tuple(self._each(limits.paths, path_glob, (*at, "paths"))),
            sources=tuple(self._each(limits.sources, source_glob, (*at, "sources"))),
            packages=tuple(self._each(limits.packages, _name_pattern, (*at, "packages"))),
            services=tuple(self._each(limits.services, _service_pattern, (*at, "services"))),
        )

    def _each(self, texts: Sequence[str], make: Callable[[str], T], at: Path) -> list[T]:
        found = []
        for number, text in enumerate(texts):
            try:
                found.append(make(text))
            except PropertyError as err:
                self._fail(err.message, (*at, number))
        return found

    def _zone(self, name: str) -> tzinfo:
        from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

        try:
            return ZoneInfo(name)
        except (ValueError, OSError, ZoneInfoNotFoundError):
            self._fail(
                f"unknown time zone `{name}`; use a name such as Europe/Berlin, and install tzdata",
                ("time_zone",),
            )

    def _fail(self, message: str, at: Path) -> NoReturn:
        raise DocumentError(message, place=locate(self._text, at, self._source))


def _written_out(actions: Sequence[str]) -> frozenset[str]:
    found = set(actions)
    if "all" in found:
        found = (found - {"all"}) | set(RUN_ACTIONS)
    return frozenset(found & {*RUN_ACTIONS, *LOOK_ACTIONS})


def _name_pattern(text: str) -> str:
    if not text.strip() or text != text.strip():
        raise PropertyError(f"`{text}` is not a valid name")
    return text


def _service_pattern(text: str) -> str:
    return _name_pattern(text).removesuffix(".service")
