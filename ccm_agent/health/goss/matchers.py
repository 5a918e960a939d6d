"""
The matchers of goss, which compare a value with an expectation.

A text, number or boolean must equal the value. If a list is expected, the value must contain each of its elements. A mapping
with one key is a matcher, such as `{gt: 5}` or `{not: {have-prefix: x}}`. If the matcher needs another type, the value is
converted first: a number to its text, a text to a number or to its lines.

Source: goss.readthedocs.io, "Matchers".
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from ccm_agent.health.goss import patterns, semver
from ccm_agent.model.errors import PropertyError
from ccm_agent.model.suggestions import did_you_mean
from ccm_agent.templates.goprint import go_print

SHOWN_LIMIT = 300
"""The maximum number of characters of a value that a message shows."""


class MismatchError(ValueError):
    """The value cannot be compared, so both the matcher and its `not` fail."""


class Matcher(Struct, frozen=True, kw_only=True):
    """
    An expectation about a value.

    Attributes:
        wanted: A description of the expectation.
        fits: Returns whether a value meets the expectation. Raises MismatchError if the value cannot be compared.
        lacks: Returns the expected elements that are not in a list; "" for matchers that do not apply to lists.
    """

    wanted: str
    fits: Callable[[Any], bool]
    lacks: Callable[[Any], str] | None = None


def show(value: Any) -> str:
    """Format a value for messages: one line of JSON, truncated if it is long."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= SHOWN_LIMIT else text[: SHOWN_LIMIT - 1] + "…"


def parse_matcher(raw: Any) -> Matcher:
    """
    Build the matcher for an expectation in the rules.

    Raises:
        PropertyError: The expectation is not a matcher.
    """
    if raw is None:
        raise PropertyError("a matcher is empty; give the expected value")
    if isinstance(raw, bool):
        return Matcher(wanted=show(raw), fits=lambda found: found is raw)
    if isinstance(raw, (int, float)):
        return Matcher(wanted=show(raw), fits=lambda found: as_number(found) == raw)
    if isinstance(raw, str):
        return Matcher(wanted=show(raw), fits=lambda found: as_text(found) == raw)
    if isinstance(raw, list):
        return _contain_elements(raw)
    if not isinstance(raw, dict) or len(raw) != 1:
        named = ", ".join(f"`{key}`" for key in raw) if isinstance(raw, dict) else show(raw)
        raise PropertyError(
            f"a mapping must contain one matcher, such as {{gt: 5}}, not {named or 'none'}; join several with `and`"
        )
    name, value = next(iter(raw.items()))
    make = _MATCHERS.get(name)
    if make is None:
        if name == "xml":
            raise PropertyError(
                "the matcher `xml` is not supported: goss 0.4.9, which Choria CCM uses, does not have it; use `match-regexp`"
            )
        raise PropertyError(f"there is no matcher `{name}`{did_you_mean(str(name), _MATCHERS)}")
    return make(value)


def have_patterns(raw: Any) -> Matcher:
    """
    Build a matcher that requires every pattern of a list to match some line of a text.

    Raises:
        PropertyError: See `patterns.parse_patterns`.
    """
    parsed = patterns.parse_patterns(raw)
    return Matcher(
        wanted=f"to have patterns {show(raw)}",
        fits=lambda found: not patterns.unmet(parsed, as_text(found)),
        lacks=lambda found: show(patterns.unmet(parsed, as_text(found))),
    )


# ---- conversion of values ----


def as_text(found: Any) -> str:
    """Convert a value to text. A list has one line per element."""
    if isinstance(found, str):
        return found
    if isinstance(found, list):
        return "\n".join(as_text(one) for one in found)
    return go_print(found)


def as_number(found: Any) -> float:
    """Convert a value to a number; MismatchError if it is not one."""
    if isinstance(found, (int, float)) and not isinstance(found, bool):
        return found
    if isinstance(found, (str, list)):
        try:
            return float(as_text(found).strip())
        except ValueError:
            pass
    raise MismatchError("it is not a number")


def as_list(found: Any) -> list[Any]:
    """Convert a value to a list: a text to its lines, a mapping to its values."""
    if isinstance(found, str):
        return found.split("\n")
    if isinstance(found, list):
        return found
    if isinstance(found, dict):
        return list(found.values())
    raise MismatchError("it is not a list")


# ---- the matchers ----


def _equal(raw: Any) -> Matcher:
    return Matcher(wanted=f"to equal {show(raw)}", fits=lambda found: _same(found, raw))


def _same(found: Any, wanted: Any) -> bool:
    if isinstance(found, bool) or isinstance(wanted, bool):
        return found is wanted
    if isinstance(found, list) and isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(_same, found, wanted))
    if isinstance(found, dict) and isinstance(wanted, dict):
        return found.keys() == wanted.keys() and all(_same(found[key], wanted[key]) for key in wanted)
    return bool(found == wanted)


def _of_text(words: str, test: Callable[[str, str], bool], name: str) -> Callable[[Any], Matcher]:
    def make(raw: Any) -> Matcher:
        if not isinstance(raw, str):
            raise PropertyError(f"`{name}` needs text, not {show(raw)}: put it in quotes")
        return Matcher(wanted=f"{words} {show(raw)}", fits=lambda found: test(as_text(found), raw))

    return make


def _match_regexp(raw: Any) -> Matcher:
    if not isinstance(raw, str):
        raise PropertyError(f"`match-regexp` needs text, not {show(raw)}: put it in quotes")
    pattern = patterns.compile_regex(raw)
    return Matcher(
        wanted=f"to match the expression {show(raw)}", fits=lambda found: pattern.matches(as_text(found))
    )


def _compare(sign: str, test: Callable[[float, float], bool], name: str) -> Callable[[Any], Matcher]:
    def make(raw: Any) -> Matcher:
        if not isinstance(raw, (int, float)) or isinstance(raw, bool):
            raise PropertyError(f"`{name}` needs a number, not {show(raw)}")
        return Matcher(wanted=f"{sign} {show(raw)}", fits=lambda found: test(as_number(found), raw))

    return make


def _have_len(raw: Any) -> Matcher:
    if not isinstance(raw, (int, float)) or isinstance(raw, bool):
        raise PropertyError(f"`have-len` needs a number, not {show(raw)}")

    def fits(found: Any) -> bool:
        if isinstance(found, str):
            return len(found.encode()) == raw
        if isinstance(found, (list, dict)):
            return len(found) == raw
        raise MismatchError("it has no length")

    return Matcher(wanted=f"to have length {show(raw)}", fits=fits)


def _have_key(raw: Any) -> Matcher:
    inner = parse_matcher(raw)

    def fits(found: Any) -> bool:
        if not isinstance(found, dict):
            raise MismatchError("it is not a mapping")
        return any(_tells(inner, key) for key in found)

    return Matcher(wanted=f"to have a key {inner.wanted}", fits=fits)


def _contain_element(raw: Any) -> Matcher:
    if isinstance(raw, (list, bool)) or raw is None:
        raise PropertyError(f"`contain-element` needs text, a number or a matcher, not {show(raw)}")
    inner = parse_matcher(raw)
    return Matcher(
        wanted=f"to contain an element {inner.wanted}",
        fits=lambda found: any(_tells(inner, one) for one in as_list(found)),
    )


def _contain_elements(raw: Any) -> Matcher:
    inner = _several(raw, "contain-elements")

    def lacks(found: Any) -> str:
        given = _given_out(inner, as_list(found))
        return _listed(one for number, one in enumerate(inner) if number not in given)

    return Matcher(
        wanted=f"to contain the elements {_listed(inner)}",
        fits=lambda found: len(_given_out(inner, as_list(found))) == len(inner),
        lacks=lacks,
    )


def _consist_of(raw: Any) -> Matcher:
    inner = _several(raw, "consist-of")

    def fits(found: Any) -> bool:
        items = as_list(found)
        return len(items) == len(inner) and len(_given_out(inner, items)) == len(inner)

    return Matcher(wanted=f"to consist of {_listed(inner)}", fits=fits)


def _not(raw: Any) -> Matcher:
    inner = parse_matcher(raw)
    return Matcher(wanted=f"not {inner.wanted}", fits=lambda found: not inner.fits(found))


def _and(raw: Any) -> Matcher:
    inner = _several(raw, "and")
    return Matcher(
        wanted=" and ".join(one.wanted for one in inner),
        fits=lambda found: all(one.fits(found) for one in inner),
        lacks=lambda found: _listed(one for one in inner if not _tells(one, found)),
    )


def _or(raw: Any) -> Matcher:
    inner = _several(raw, "or")

    def fits(found: Any) -> bool:
        # if one matcher raises because it cannot compare the value, another may still match
        return any(_tells(one, found) for one in inner)

    return Matcher(wanted=" or ".join(one.wanted for one in inner), fits=fits)


def _semver_constraint(raw: Any) -> Matcher:
    if not isinstance(raw, str):
        raise PropertyError(f"`semver-constraint` needs text, not {show(raw)}: put it in quotes")
    try:
        holds = semver.parse_range(raw)
    except ValueError as err:
        raise PropertyError(f"`semver-constraint`: {err}") from err

    def fits(found: Any) -> bool:
        versions = found if isinstance(found, list) else [found]
        try:
            parsed = [semver.parse_version(as_text(one)) for one in versions]
        except ValueError as err:
            raise MismatchError(str(err)) from err
        if not parsed:
            raise MismatchError("there is no version")
        return all(holds(version) for version in parsed)

    return Matcher(wanted=f"to satisfy the versions {show(raw)}", fits=fits)


def _gjson(raw: Any) -> Matcher:
    if not isinstance(raw, dict) or not raw:
        raise PropertyError(f"`gjson` needs a mapping from paths to matchers, not {show(raw)}")
    inner = {str(path): parse_matcher(one) for path, one in raw.items()}

    def fits(found: Any) -> bool:
        return all(one.fits(_looked_up(found, path)) for path, one in inner.items())

    words = ", ".join(f"{path} {one.wanted}" for path, one in inner.items())
    return Matcher(wanted=f"in JSON: {words}", fits=fits)


def _looked_up(found: Any, path: str) -> Any:
    from ccm_agent.templates.gjson import get

    if not isinstance(found, str):
        raise MismatchError("it is not text with JSON")
    try:
        json.loads(found)
    except (ValueError, RecursionError) as err:
        raise MismatchError("it is not valid JSON") from err
    result = get(found, path)
    if not result.exists:
        raise MismatchError(f"there is nothing at the path {path}")
    return result.value()


def _several(raw: Any, name: str) -> list[Matcher]:
    if not isinstance(raw, list):
        raise PropertyError(f"`{name}` needs a list, not {show(raw)}")
    return [parse_matcher(one) for one in raw]


def _listed(inner: Any) -> str:
    text = f"[{', '.join(one.wanted for one in inner)}]"
    return text if len(text) <= SHOWN_LIMIT else text[: SHOWN_LIMIT - 1] + "…"


def _tells(matcher: Matcher, found: Any) -> bool:
    try:
        return matcher.fits(found)
    except MismatchError:
        return False


def _given_out(inner: Sequence[Matcher], items: Sequence[Any]) -> dict[int, int]:
    """Assign different elements to as many matchers as possible (maximum matching with augmenting paths)."""
    choices = [[number for number, item in enumerate(items) if _tells(one, item)] for one in inner]
    taken: dict[int, int] = {}  # element to matcher

    def serve(matcher: int, seen: set[int]) -> bool:
        for element in choices[matcher]:
            if element in seen:
                continue
            seen.add(element)
            if element not in taken or serve(taken[element], seen):
                taken[element] = matcher
                return True
        return False

    for matcher in range(len(inner)):
        serve(matcher, set())
    return {matcher: element for element, matcher in taken.items()}


_MATCHERS: dict[str, Callable[[Any], Matcher]] = {
    "equal": _equal,
    "have-prefix": _of_text("to have the prefix", str.startswith, "have-prefix"),
    "have-suffix": _of_text("to have the suffix", str.endswith, "have-suffix"),
    "contain-substring": _of_text("to contain", str.__contains__, "contain-substring"),
    "match-regexp": _match_regexp,
    "gt": _compare(">", operator.gt, "gt"),
    "ge": _compare(">=", operator.ge, "ge"),
    "lt": _compare("<", operator.lt, "lt"),
    "le": _compare("<=", operator.le, "le"),
    "have-len": _have_len,
    "have-key": _have_key,
    "have-patterns": have_patterns,
    "contain-element": _contain_element,
    "contain-elements": _contain_elements,
    "consist-of": _consist_of,
    "not": _not,
    "and": _and,
    "or": _or,
    "semver-constraint": _semver_constraint,
    "gjson": _gjson,
}
