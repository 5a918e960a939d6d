"""The secrets that one run knows, and their removal from names, notes, errors and tracebacks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ccm_agent.engine.masking import PLAIN_VARIABLES
from ccm_agent.hiera.secret_keys import is_secret_setting, named_secrets, secret_values
from ccm_agent.model.errors import CcmError, ExpressionError, HostError
from ccm_agent.model.secret import Masker, secrets_of_url

CAUSES = 50
"""How many causes of an error are masked. A longer chain may be a cycle."""


class Secrets:
    """
    The secrets of a run.

    Attributes:
        masker: Masks them.

    Args:
        process: The masker of the process's log, which receives them too; None without a log.
    """

    def __init__(self, process: Masker | None = None) -> None:
        self.masker = Masker(teaches=process)
        self._keys: dict[str, None] = {}

    def declare(self, keys: Sequence[str]) -> None:
        """Treat the values at these keys of data as secret, in every manifest of the run."""
        self._keys |= dict.fromkeys(keys)

    def learn_data(self, data: Mapping[str, Any]) -> None:
        """Collect the values at the declared keys, at keys whose names indicate a secret, and in URLs."""
        for value in secret_values(data, self._keys):
            self.masker.learn(value)
        for value, is_own in named_secrets(data):
            self.masker.learn(value, is_certain=is_own)
        for text in _texts_with_urls(data):
            for secret in secrets_of_url(text):
                self.masker.learn(secret)

    def learn_variables(self, variables: Mapping[str, str]) -> None:
        """Collect the values of variables whose names indicate a secret, which expressions see as `Environ`."""
        for name, value in variables.items():
            if name not in PLAIN_VARIABLES and is_secret_setting(name, value):
                self.masker.learn(value)

    @contextmanager
    def kept_out_of_errors(self) -> Iterator[None]:
        """Mask an error that leaves the run, and all its causes, because a traceback shows them."""
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
            # an exit code is a number, and the first argument of an exception group must not change
            err.args = tuple(masker.text(arg) if isinstance(arg, str) else arg for arg in err.args)
        if notes := getattr(err, "__notes__", None):
            err.__notes__ = [masker.text(note) for note in notes]
        if isinstance(err, CcmError):
            err.message = masker.text(err.message)
        if isinstance(err, ExpressionError):
            err.expression = masker.text(err.expression)
        if isinstance(err, HostError):
            err.output = masker.text(err.output)


def _texts_with_urls(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        if "://" in value:
            yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts_with_urls(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts_with_urls(inner)
