"""The resources of a manifest that a run applies: selected with `--only`, and by tags."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from msgspec import Struct

from ccm_agent.model.errors import UsageError
from ccm_agent.model.formats.patterns import lazy_pattern
from ccm_agent.model.resource import parse_reference

TAG = lazy_pattern(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}")
"""A tag of a resource."""

TAG_RULE = "letters, digits and `_.:-`, beginning with a letter or digit, at most 64 characters"

NAMED_LIMIT = 100
"""The maximum number of resources, and of tags, in a selection."""


class ResourceSelection(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    A part of a manifest.

    Attributes:
        only: `type#name`, by name or alias. With `tags`, either of them selects a resource.
        tags: Resources with at least one of these tags. Without `only` and `tags` all resources are selected.
        skip_tags: Resources with one of these tags are left out, even if `only` contains them.
    """

    only: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    skip_tags: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether it selects every resource."""
        return not (self.only or self.tags or self.skip_tags)

    def names(self, references: Iterable[str], tags: Collection[str]) -> bool:
        """Whether the selection includes a resource, or a manifest that contains it, by name or tag."""
        if not self.only and not self.tags:
            return True
        return any(one in self.only for one in references) or not set(self.tags).isdisjoint(tags)

    def skips(self, tags: Collection[str]) -> bool:
        """Whether a tag excludes a resource."""
        return not set(self.skip_tags).isdisjoint(tags)

    def __str__(self) -> str:
        """Return the command-line options that make this selection."""
        given = (("--only", self.only), ("--tags", self.tags), ("--skip-tags", self.skip_tags))
        return " ".join(
            f"{option} {one}" if option == "--only" else f"{option} {','.join(values)}"
            for option, values in given
            for one in (values if option == "--only" else values[:1])
        )


def make_selection(
    only: Collection[str], tags: Collection[str], skip_tags: Collection[str]
) -> ResourceSelection | None:
    """
    Return the selection from command-line options; None if there are none.

    Args:
        only: `type#name`, one for each option, because names may contain commas.
        tags, skip_tags: Tags; a text may contain several, separated by commas.

    Raises:
        UsageError: An option is not a valid reference or tag.
    """
    for reference in only:
        if parse_reference(reference) is None:
            raise UsageError(f"--only {reference}: is not a resource; write type#name, such as service#nginx")
    selection = ResourceSelection(
        only=tuple(dict.fromkeys(only)),
        tags=_split("--tags", tags),
        skip_tags=_split("--skip-tags", skip_tags),
    )
    for option, named in (("--only", selection.only), ("--tags", (*selection.tags, *selection.skip_tags))):
        if len(named) > NAMED_LIMIT:
            raise UsageError(f"{option}: {len(named)} are named, but at most {NAMED_LIMIT} are allowed")
    return None if selection.is_whole else selection


def _split(option: str, texts: Collection[str]) -> tuple[str, ...]:
    tags = [tag.strip() for text in texts for tag in text.split(",")]
    for tag in tags:
        if not TAG.fullmatch(tag):
            raise UsageError(f"{option} {tag}: is not a tag: {TAG_RULE}")
    return tuple(dict.fromkeys(tags))
