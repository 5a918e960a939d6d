"""What one run knows to be secret, and where it keeps that out of: names, notes, errors and their tracebacks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ccm_agent.hiera.secret_keys import secret_values
from ccm_agent.model.errors import CcmError, ExpressionError, HostError
from ccm_agent.model.secret import Masker

CAUSES = 50
"""So many errors behind an error are looked at; a longer chain does not end by itself."""


class Secrets:
    """
    The secrets of a run.

    Attributes:
        masker: Takes them out.

    Args:
        process: Learns them too, for the log of the process; None where there is no log.
    """

    def __init__(self, process: Masker | None = None) -> None:
        self.masker = Masker(teaches=process)
        self._keys: dict[str, None] = {}

    def declare(self, keys: Sequence[str]) -> None:
        """Values at these keys of data are secret, in every manifest of the run."""
        self._keys |= dict.fromkeys(keys)

    def learn_data(self, data: Mapping[str, Any]) -> None:
        """Learn what stands at the keys that were declared."""
        for value in secret_values(data, self._keys):
            self.masker.learn(value)

    @contextmanager
    def kept_out_of_errors(self) -> Iterator[None]:
        """An error that leaves here holds no secret, and none of those behind it do: a traceback shows all of them."""
        try:
            yield
        except Exception as err:
            self._clean(err)
            raise

    def _clean(self, err: BaseException) -> None:
        waiting: list[BaseException | None] = [err]
        seen: set[int] = set()
        while waiting and len(seen) < CAUSES:
            one = waiting.pop()
            if one is None or id(one) in seen:
                continue
            seen.add(id(one))
            self._clean_one(one)
            waiting += (one.__cause__, one.__context__)
            if isinstance(one, BaseExceptionGroup):
                waiting += one.exceptions

    def _clean_one(self, err: BaseException) -> None:
        masker = self.masker
        if isinstance(err, OSError):
            for field in ("filename", "filename2", "strerror"):
                if isinstance(shown := getattr(err, field), str):
                    setattr(err, field, masker.text(shown))
        else:
            # an exit code is a number, and a group's first argument must stay what it was
            err.args = tuple(masker.text(arg) if isinstance(arg, str) else arg for arg in err.args)
        if notes := getattr(err, "__notes__", None):
            err.__notes__ = [masker.text(note) for note in notes]
        if isinstance(err, CcmError):
            err.message = masker.text(err.message)
        if isinstance(err, ExpressionError):
            err.expression = masker.text(err.expression)
        if isinstance(err, HostError):
            err.output = masker.text(err.output)
