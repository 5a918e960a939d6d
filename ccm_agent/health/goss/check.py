"""
Run checks in the format of goss: rules about the host.

A failed rule makes the check CRITICAL, and failed rules are listed first. A rule also fails if a server does not answer or a file
is missing. If a rule cannot be checked, the result is UNKNOWN.
"""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec import Struct

from ccm_agent.health.goss.found import GossQuery, NoValue
from ccm_agent.health.goss.matchers import Matcher, MismatchError, show
from ccm_agent.health.goss.rules import GossRule, parse_rules
from ccm_agent.health.host import HealthCheckHost
from ccm_agent.model.errors import CcmError, DocumentError, HostError, PropertyError
from ccm_agent.model.formats.durations import parse_duration
from ccm_agent.model.health import HealthCheck, HealthResult, HealthStatus

SHOWN_RULES = 50
"""The maximum number of failed rules in the output. The count at the end of the output includes all failed rules."""
SMALL = 1 << 14
"""A number of characters. Longer texts are matched in a thread."""
RETRY_S = 1.0


class GossResult(Struct, frozen=True, kw_only=True):
    """
    The result of one rule.

    Attributes:
        passed, skipped: The number of attributes.
        failures: One line for each attribute that failed.
        unknown: The reason why the rule could not be checked; "" if it was checked.
    """

    passed: int = 0
    skipped: int = 0
    failures: tuple[str, ...] = ()
    unknown: str = ""


async def attempt(check: HealthCheck, host: HealthCheckHost) -> HealthResult:
    """
    Check the rules once, in order.

    If a rule cannot be checked, the result is UNKNOWN with the reason. No error is raised.
    """
    limit_s = parse_duration(check.timeout) if check.timeout else 0.0
    try:
        rules = parse_rules(check.goss_rules)
        async with asyncio.timeout(limit_s if limit_s > 0 else None):
            return _result([await judge(rule, host) for rule in rules])
    except PropertyError as err:
        return HealthResult(status=HealthStatus.UNKNOWN, output=err.message)
    except TimeoutError:
        return HealthResult(status=HealthStatus.UNKNOWN, output=f"did not end within {check.timeout}")


async def judge(rule: GossRule, host: HealthCheckHost) -> GossResult:
    """Check a rule and return the result. The rule's `retries` option sets how often to retry."""
    if rule.is_skipped:
        return GossResult(skipped=len(rule.wanted))
    tries = int(rule.options.get("retry_count", 0)) + 1
    for number in range(1, tries + 1):
        verdict = await _judge_once(rule, host)
        if not verdict.failures and not verdict.unknown:
            break
        if number < tries:
            await host.clock.sleep(_pause_s(rule))
    return verdict


async def _judge_once(rule: GossRule, host: HealthCheckHost) -> GossResult:
    title = f"{rule.kind.name} {rule.name}"
    look = GossQuery(subject=rule.subject, options=rule.options, asked=tuple(rule.wanted), host=host)
    try:
        found = await rule.kind.look(look)
    except (HostError, KeyError) as err:
        why = err.message if isinstance(err, CcmError) else f"this program does not provide {err}"
        return GossResult(unknown=f"{title}: cannot be checked: {why}")
    passed, failures = 0, []
    attributes = list(rule.wanted)
    for number, attribute in enumerate(attributes, 1):
        value = found[attribute]
        line = await _compare(rule.wanted[attribute], value)
        if line:
            failures.append(f"{title} {attribute}: {line}")
        else:
            passed += 1
        is_first = attribute == rule.kind.attributes[0] and rule.kind.required
        if is_first and (line or value is False):
            return GossResult(passed=passed, skipped=len(attributes) - number, failures=tuple(failures))
    return GossResult(passed=passed, failures=tuple(failures))


async def _compare(matcher: Matcher, value: Any) -> str:
    """Describe how a value differs from the expected value; "" if it matches."""
    if isinstance(value, NoValue):
        return f"found nothing ({value.why}), wanted {matcher.wanted}"
    if isinstance(value, str) and len(value) > SMALL:
        return await asyncio.to_thread(_miss, matcher, value)
    return _miss(matcher, value)


def _miss(matcher: Matcher, value: Any) -> str:
    words = f"found {show(value)}, wanted {matcher.wanted}"
    try:
        if matcher.fits(value):
            return ""
        lacking = matcher.lacks(value) if matcher.lacks is not None else ""
    except MismatchError as err:
        return f"{words}: {err}"
    except CcmError as err:
        return f"{words}: {err.message}"
    return f"{words}; not met: {lacking}" if lacking else words


def _pause_s(rule: GossRule) -> float:
    """Return the pause between tries. A number is in milliseconds. A text is a duration."""
    raw = rule.options.get("retry_delay")
    if isinstance(raw, (int, float)) and raw > 0:
        return raw / 1000
    if isinstance(raw, str):
        try:
            return parse_duration(raw) or RETRY_S
        except DocumentError:
            return RETRY_S
    return RETRY_S


def _result(verdicts: list[GossResult]) -> HealthResult:
    failures = [line for one in verdicts for line in one.failures]
    unknown = [one.unknown for one in verdicts if one.unknown]
    skipped = sum(one.skipped for one in verdicts)
    count = sum(one.passed for one in verdicts) + len(failures) + len(unknown) + skipped
    status = HealthStatus.OK
    if failures:
        status = HealthStatus.CRITICAL
    elif unknown:
        status = HealthStatus.UNKNOWN
    lines = [*failures, *unknown]
    if len(lines) > SHOWN_RULES:
        lines = [*lines[:SHOWN_RULES], f"… and {len(lines) - SHOWN_RULES} more"]
    summary = f"Count: {count}, Failed: {len(failures)}, Skipped: {skipped}"
    if unknown:
        summary += f", Unknown: {len(unknown)}"
    return HealthResult(status=status, output="\n".join([*lines, summary]))
