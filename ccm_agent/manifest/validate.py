"""Checks of properties that all types share. Additional checks of a type are in its own `check`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Meta

from ccm_agent.manifest.expressions import has_markers
from ccm_agent.model.errors import DocumentError, Place, PropertyError
from ccm_agent.model.formats.durations import parse_duration
from ccm_agent.model.health import HealthCheck
from ccm_agent.model.records.registration import RegistrationEntry, check_entry
from ccm_agent.model.resource import MANIFEST_ONLY, CommonProperties, parse_reference
from ccm_agent.model.selection import TAG, TAG_RULE
from ccm_agent.model.suggestions import did_you_mean, either
from ccm_agent.resources.checks import check_each, refuse
from ccm_agent.resources.contract import AnyType


def check_properties(kind: AnyType, wanted: CommonProperties) -> None:
    """
    Refuse invalid properties, and fill in missing values: `ensure`, and names and formats of health checks.

    Raises:
        PropertyError: A property is invalid. The place may have a path from the resource, such as `$.require[0]`.
    """
    check_each(wanted, *common_checks(kind), *([kind.check] if kind.check is not None else []))


def common_checks(kind: AnyType) -> list[Callable[[CommonProperties], None]]:
    """Return the checks for resources of every type; each check handles one property."""
    return [
        _check_name,
        lambda wanted: check_ensure(kind, wanted),
        lambda wanted: _check_references(wanted.require, "require"),
        lambda wanted: _check_references(getattr(wanted, "subscribe", ()), "subscribe"),
        lambda wanted: _check_references(wanted.rescue, "rescue"),
        lambda wanted: _check_references(wanted.before, "before"),
        lambda wanted: _check_references(wanted.notify, "notify"),
        _check_control,
        _check_health,
        _check_registrations,
        _check_tags,
        lambda wanted: _check_behavior(kind, wanted),
    ]


def late_checks(kind: AnyType, written: Mapping[str, Any]) -> list[Callable[[CommonProperties], None]]:
    """
    Return the checks that a run performs only when it applies the resource, as in Choria CCM.

    Args:
        kind: The type.
        written: The values as written.
    """
    checks: list[Callable[[CommonProperties], None]] = [_check_rules]
    if kind.check_by_lint is not None:
        checks.append(kind.check_by_lint)
    if (check := kind.check_when_applied) is not None:
        checks.append(lambda wanted: check(wanted, written))
    return checks


def check_outside_manifest(wanted: CommonProperties) -> None:
    """
    Refuse properties of a single resource that are only meaningful in a manifest.

    Raises:
        PropertyError: The resource has such a property.
    """
    for field in MANIFEST_ONLY:
        if getattr(wanted, field):
            refuse(f"`{field}` is only for resources of a manifest", field)


def _check_rules(wanted: CommonProperties) -> None:
    """Check goss rules. In a run, rules that cannot be decoded make the health check UNKNOWN."""
    for number, check in enumerate(wanted.health_checks):
        if check.goss_rules is None:
            continue
        from ccm_agent.health.goss.rules import holds_templates, parse_rules

        if holds_templates(check.goss_rules):
            continue  # a template is validated after it has been rendered
        try:
            parse_rules(check.goss_rules, is_strict=True)
        except PropertyError as err:
            raise PropertyError(err.message, place=Place(path=f"$.health_checks[{number}]")) from err


def _check_name(wanted: CommonProperties) -> None:
    if not wanted.name:
        refuse("the name is empty: a resource needs one", "name")
    if "\x00" in wanted.name:
        refuse("the name contains a NUL character", "name")


def check_ensure(kind: AnyType, wanted: CommonProperties) -> None:
    """
    Refuse a value of `ensure` that the type does not support, and fill in the default.

    Raises:
        PropertyError: The value is missing, or the type does not support it.
    """
    if not wanted.ensure:
        if not kind.default_ensure:
            refuse(f"`ensure` is missing: write {_format_ensure_values(kind)}", "ensure")
        wanted.ensure = kind.default_ensure
    elif kind.ensure and wanted.ensure not in kind.ensure:
        hint = did_you_mean(wanted.ensure, kind.ensure)
        refuse(f"`ensure` is `{wanted.ensure}`{hint or f', and must be {either(kind.ensure)}'}", "ensure")


def _format_ensure_values(kind: AnyType) -> str:
    """Format the valid values of `ensure` for a sentence. If any text is valid, return the property's description."""
    if kind.ensure:
        return either(kind.ensure)
    field = next(one for one in msgspec.structs.fields(kind.properties) if one.name == "ensure")
    described = [one.description for one in getattr(field.type, "__metadata__", ()) if isinstance(one, Meta)]
    return (described[0] or "").rstrip(".") if described else "the desired state"


def _check_control(wanted: CommonProperties) -> None:
    control = wanted.control
    if control is None or not (control.slots or control.slots_wait):
        return
    from ccm_agent.model.records.slots import parse_slot

    try:
        parse_slot(control.slots)
    except PropertyError as err:
        refuse(err.message, "control.slots")
    if control.slots_wait:
        try:
            parse_duration(control.slots_wait)
        except DocumentError as err:
            refuse(err.message, "control.slots_wait")


def _check_health(wanted: CommonProperties) -> None:
    if wanted.health_checks:
        wanted.health_checks = [
            _check_one(number, check) for number, check in enumerate(wanted.health_checks)
        ]


def _check_registrations(wanted: CommonProperties) -> None:
    for number, entry in enumerate(wanted.register_when_stable):
        _check_entry(number, entry)


def _check_one(number: int, check: HealthCheck) -> HealthCheck:
    from ccm_agent.health.run import normalise

    try:
        return normalise(check)
    except PropertyError as err:
        raise PropertyError(err.message, place=Place(path=f"$.health_checks[{number}]")) from err


def _check_entry(number: int, entry: RegistrationEntry) -> None:
    try:
        check_entry(entry)
    except PropertyError as err:
        path = err.place.path.removeprefix("$") if err.place is not None else ""
        raise PropertyError(err.message, place=Place(path=f"$.register_when_stable[{number}]{path}")) from err


def _check_tags(wanted: CommonProperties) -> None:
    for number, tag in enumerate(wanted.tags):
        if not TAG.fullmatch(tag):
            raise PropertyError(
                f"`{tag}` is not a valid tag: {TAG_RULE}", place=Place(path=f"$.tags[{number}]")
            )


def _check_behavior(kind: AnyType, wanted: CommonProperties) -> None:
    if wanted.ignore:
        from ccm_agent.resources.ignored import check_ignore

        check_ignore(kind, wanted)
    if wanted.retry is not None:
        from ccm_agent.resources.attempts import check_retry

        check_retry(kind, wanted.retry)
        if has_markers(wanted.retry.until):
            # the rendered text would become part of the expression, but data must not be executed as code
            refuse("`until` is an expression: write it without `{{ }}` and `${ }`", "retry.until")
    if wanted.timeout and "timeout" in kind.rules.limits_resource:
        from ccm_agent.resources.time_limit import check_timeout

        check_timeout(kind, wanted)


def _check_references(references: Sequence[str], field: str) -> None:
    for number, reference in enumerate(references):
        if parse_reference(reference) is None:
            message = f"`{reference}` is not a valid reference; write `type#name`, such as `package#nginx`"
            raise PropertyError(message, place=Place(path=f"$.{field}[{number}]"))
