"""
Limits after which a template is stopped.

A template comes from a manifest and can loop. Our own engines (Jet and Go) count their work and end with an
error that names the limit. All limits are far above the needs of a configuration file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sized
from contextlib import contextmanager

from ccm_agent.model.errors import CcmError, Place, TemplateError, TemplateLimitError

STEPS_MAX = 2_000_000  # statements, iterations and calls: about ten seconds
OUTPUT_MAX = 16 * 1024 * 1024  # characters of output, or of one text value
ITEMS_MAX = 2_000_000  # elements of one list or map that a function returns
OUT_OF_MEMORY = "template needs more memory than it may have; does a loop make ever longer values?"
DEPTH_MAX = 100  # nesting of templates and blocks, and of parentheses and control structures


class Budget:
    """
    The remaining limits of one render.

    Attributes:
        depth: The current nesting of templates and blocks; code that catches an error restores it.
    """

    __slots__ = ("_room", "_steps", "depth")

    def __init__(self) -> None:
        self._steps = STEPS_MAX
        self._room = OUTPUT_MAX
        self.depth = 0

    def step(self) -> None:
        """Count one statement, iteration or call."""
        self._steps -= 1
        if self._steps < 0:
            raise TemplateLimitError(
                f"template runs too long: more than {STEPS_MAX} steps; does a loop or block never end?"
            )

    def write(self, length: int) -> None:
        """Count characters of output."""
        self._room -= length
        if self._room < 0:
            raise TemplateLimitError(f"output is too long: more than {OUTPUT_MAX} characters")

    def enter(self) -> None:
        """Enter a template or block. Each call is paired with `leave`."""
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise TemplateLimitError(
                f"templates are nested too deeply: more than {DEPTH_MAX}; does one include itself?"
            )

    def leave(self) -> None:
        """Leave a template or block."""
        self.depth -= 1


def check_length(length: int) -> None:
    """
    Refuse to create a text of this many characters.

    Raises:
        TemplateLimitError: The length exceeds OUTPUT_MAX.
    """
    if length > OUTPUT_MAX:
        raise TemplateLimitError(f"text is too long: more than {OUTPUT_MAX} characters")


def check_count(count: int) -> None:
    """
    Refuse to create a list of this many items.

    Raises:
        TemplateLimitError: The count exceeds ITEMS_MAX.
    """
    if count > ITEMS_MAX:
        raise TemplateLimitError(f"list is too long: more than {ITEMS_MAX} items")


def check_size(value: object) -> None:
    """
    Refuse a text or list that a function returned if it is too large to work on.

    Raises:
        TemplateLimitError: The value has more than OUTPUT_MAX characters or ITEMS_MAX items.
    """
    if isinstance(value, str):
        check_length(len(value))
    elif isinstance(value, Sized):
        check_count(len(value))


@contextmanager
def errors_with_place(place: Callable[[], Place]) -> Iterator[None]:
    """
    Convert any error of a render to a TemplateError with the place in the template.

    Args:
        place: Returns the place of the current statement.
    """
    try:
        yield
    except RecursionError:
        raise TemplateError("template is nested too deeply", place=place()) from None
    except MemoryError:
        raise TemplateLimitError(OUT_OF_MEMORY, place=place()) from None
    except CcmError as err:
        if err.place is not None and err.place.line:
            raise
        raise placed(err, place()) from err


def placed(err: CcmError, place: Place) -> TemplateError:
    """Return the same error with its place in the template."""
    kind = TemplateLimitError if isinstance(err, TemplateLimitError) else TemplateError
    return kind(err.message, place=place)
