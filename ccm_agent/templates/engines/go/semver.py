"""
Semantic versions and version constraints, as in Sprig's `semver` and `semverCompare`.

Source: semver.org 2.0.0; the documentation of github.com/Masterminds/semver, "Checking Version Constraints".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ccm_agent.model.errors import TemplateError
from ccm_agent.templates.values import GoValue

_TAIL = r"(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?"
_VERSION = re.compile(r"v?([0-9]+)(?:\.([0-9]+))?(?:\.([0-9]+))?" + _TAIL)
_OPERATOR = r"(!=|>=|=>|<=|=<|~>|=|>|<|~|\^|)"
_PART = r"([0-9]+|[xX*])"
_WANTED = rf"v?{_PART}(?:\.{_PART})?(?:\.{_PART})?{_TAIL}"
_CONSTRAINT = re.compile(rf"\s*{_OPERATOR}\s*{_WANTED}\s*")
_HYPHEN = re.compile(rf"\s*({_WANTED})\s+-\s+({_WANTED})\s*")
_LENGTH_MAX = 256
_CONSTRAINT_LENGTH_MAX = 512
_NUMBER_MAX = 2**64 - 1


class Version(GoValue):
    """
    A semantic version.

    Attributes:
        major: The first number.
        minor: The second number.
        patch: The third number.
        prerelease: The part after a dash.
        metadata: The part after a plus, which is ignored in comparisons.
        original: As written.
    """

    __slots__ = ("major", "metadata", "minor", "original", "patch", "prerelease")
    go_type = "*semver.Version"

    def __init__(self, numbers: tuple[int, int, int], prerelease: str, metadata: str, original: str) -> None:
        self.major, self.minor, self.patch = numbers
        self.prerelease = prerelease
        self.metadata = metadata
        self.original = original

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and self.go_text() == other.go_text()

    def __hash__(self) -> int:
        return hash(self.go_text())

    def go_text(self) -> str:
        text = f"{self.major}.{self.minor}.{self.patch}"
        text += f"-{self.prerelease}" if self.prerelease else ""
        return text + (f"+{self.metadata}" if self.metadata else "")

    def next_major(self) -> Version:
        """Return the next major version, without prerelease and metadata."""
        return self._next(self.major + 1, 0, 0)

    def next_minor(self) -> Version:
        """Return the next minor version, without prerelease and metadata."""
        return self._next(self.major, self.minor + 1, 0)

    def next_patch(self) -> Version:
        """Return the next patch version; for a prerelease, its release."""
        return self._next(self.major, self.minor, self.patch + (not self.prerelease))

    def _next(self, major: int, minor: int, patch: int) -> Version:
        return Version((major, minor, patch), "", "", f"{major}.{minor}.{patch}")

    def compare(self, other: Any) -> int:
        """
        Return -1, 0 or 1 if this version is older than, equal to or newer than another.

        Raises:
            TemplateError: The other value is not a version.
        """
        if not isinstance(other, Version):
            raise TemplateError(
                "a version can only be compared with another version; use 'semver' to create one"
            )
        left = (self.major, self.minor, self.patch)
        right = (other.major, other.minor, other.patch)
        if left != right:
            return -1 if left < right else 1
        return _compare_prereleases(self.prerelease, other.prerelease)


def parse_version(text: str) -> Version:
    """
    Parse a version; a leading `v`, missing parts and leading zeroes are accepted.

    Raises:
        TemplateError: The text is not a version.
    """
    match = _VERSION.fullmatch(text) if len(text) <= _LENGTH_MAX else None
    numbers = [int(match[index] or 0) for index in (1, 2, 3)] if match else [-1]
    if match is None or max(numbers) > _NUMBER_MAX:
        raise TemplateError("text is not a semantic version, such as 1.2.3 or 1.2.3-rc.1")
    return Version((numbers[0], numbers[1], numbers[2]), match[4] or "", match[5] or "", text)


def _compare_prereleases(left: str, right: str) -> int:
    if left == right:
        return 0
    if not left or not right:
        return 1 if not left else -1  # a release is newer than its prereleases
    a, b = left.split("."), right.split(".")
    for x, y in zip(a, b, strict=False):
        if x != y:
            return _compare_parts(x, y)
    return (len(a) > len(b)) - (len(a) < len(b))


def _compare_parts(left: str, right: str) -> int:
    if left.isdigit() and right.isdigit():
        return (int(left) > int(right)) - (int(left) < int(right))
    if left.isdigit() != right.isdigit():
        return -1 if left.isdigit() else 1
    return (left > right) - (left < right)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """
    One condition.

    Attributes:
        operator: As written.
        version: The version, with zeroes for omitted numbers.
        given: The number of version parts before the first omitted part, at most three.
    """

    operator: str
    version: Version
    given: int


def satisfies(constraint: str, version: str) -> bool:
    """
    Whether a version satisfies a constraint such as `>=1.2, <2.0 || ^3`.

    Raises:
        TemplateError: The version or the constraint is malformed.
    """
    groups = [_parse_group(group) for group in _without_hyphens(constraint).split("||")]
    found = parse_version(version)
    return any(_meets(group, found) for group in groups)


def _meets(group: list[_Wanted], version: Version) -> bool:
    if version.prerelease and not any(wanted.version.prerelease for wanted in group):
        return False  # prereleases match only if the constraint contains one
    return all(_CHECKS[wanted.operator](version, wanted) for wanted in group)


def _without_hyphens(constraint: str) -> str:
    """Rewrite `1.2 - 1.4` in a constraint as `>=1.2, <=1.4`."""
    if len(constraint) > _CONSTRAINT_LENGTH_MAX:
        raise TemplateError(f"the constraint is longer than {_CONSTRAINT_LENGTH_MAX} characters")
    return _HYPHEN.sub(lambda match: f">={match[1]}, <={match[7]} ", constraint)


def _parse_group(group: str) -> list[_Wanted]:
    wanted: list[_Wanted] = []
    position = 0
    while position < len(group) or not wanted:
        match = _CONSTRAINT.match(group, position)
        separated = position == 0 or group[position - 1].isspace() or group[position - 1] == ","
        if match is None or not separated:
            raise TemplateError("text is not a constraint on versions, such as '>=1.2, <2' or '^1.2'")
        wanted.append(_wanted(match))
        position = match.end()
        if group[position : position + 1] == ",":
            position += 1
    return wanted


def _wanted(match: re.Match[str]) -> _Wanted:
    numbers: list[int] = []
    for part in (match[2], match[3], match[4]):
        if part is None or part in "xX*":
            break
        numbers.append(int(part))
    given = len(numbers)
    numbers += [0] * (3 - given)
    if max(numbers) > _NUMBER_MAX:
        raise TemplateError("text is not a constraint on versions: a number is too large")
    return _Wanted(
        match[1], Version((numbers[0], numbers[1], numbers[2]), match[5] or "", "", match[0]), given
    )


def _same(version: Version, wanted: _Wanted) -> bool:
    return _tilde(version, wanted) if wanted.given < 3 else version.compare(wanted.version) == 0


def _not_same(version: Version, wanted: _Wanted) -> bool:
    if wanted.given in (0, 3):
        return version.compare(wanted.version) != 0
    if version.major != wanted.version.major:
        return True
    if wanted.given == 1:
        return False
    return version.minor != wanted.version.minor or version.prerelease != wanted.version.prerelease


def _greater(version: Version, wanted: _Wanted) -> bool:
    if wanted.given in (0, 3):
        return version.compare(wanted.version) > 0
    if version.major != wanted.version.major:
        return version.major > wanted.version.major
    return wanted.given == 2 and version.minor > wanted.version.minor


def _less(version: Version, wanted: _Wanted) -> bool:
    return version.compare(wanted.version) < 0


def _at_least(version: Version, wanted: _Wanted) -> bool:
    return version.compare(wanted.version) >= 0


def _at_most(version: Version, wanted: _Wanted) -> bool:
    if wanted.given == 3:
        return version.compare(wanted.version) <= 0
    if version.major != wanted.version.major:
        return version.major < wanted.version.major
    return wanted.given == 1 or version.minor <= wanted.version.minor


def _tilde(version: Version, wanted: _Wanted) -> bool:
    """Whether the major number is the same, and also the minor number if it is given."""
    least = wanted.version
    if version.compare(least) < 0:
        return False
    if wanted.given in (0, 3) and (least.major, least.minor, least.patch) == (0, 0, 0):
        return True
    return version.major == least.major and (wanted.given == 1 or version.minor == least.minor)


def _caret(version: Version, wanted: _Wanted) -> bool:
    """Whether the numbers up to and including the first non-zero one are the same."""
    least = wanted.version
    if version.compare(least) < 0:
        return False
    if least.major > 0 or wanted.given == 1:
        return version.major == least.major
    if wanted.given == 0:
        return version.major == 0 and version.minor == 0 and version.patch == 0
    if version.major != 0 or version.minor != least.minor:
        return False
    return least.minor > 0 or wanted.given == 2 or version.patch == least.patch


_CHECKS: dict[str, Callable[[Version, _Wanted], bool]] = {
    "": _same,
    "=": _same,
    "!=": _not_same,
    ">": _greater,
    "<": _less,
    ">=": _at_least,
    "=>": _at_least,
    "<=": _at_most,
    "=<": _at_most,
    "~": _tilde,
    "~>": _tilde,
    "^": _caret,
}
