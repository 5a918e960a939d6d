"""The known secrets of one run. Masks them in names, notes, errors and tracebacks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from ccm_agent.engine.masking import PLAIN_VARIABLES
from ccm_agent.hiera.secret_keys import is_secret_setting, named_secrets, secret_values
from ccm_agent.model.errors import CcmError, ExpressionError, HostError, PropertyError
from ccm_agent.model.formats.patterns import lazy_pattern
from ccm_agent.model.records.sealed import SECRET_URL
from ccm_agent.model.secret import Masker, OpenedSecret, secrets_of_url
from ccm_agent.resources.contract import ResolvedResource

_REFERENCE = lazy_pattern(rf"{SECRET_URL}([a-z0-9][a-z0-9_-]*)")

CAUSES = 50
"""The maximum number of causes of an error that are masked. A longer chain may be a cycle."""


class Secrets:
    """
    The secrets of a run.

    Attributes:
        masker: Masks the secrets.

    Args:
        process: The masker of the process's log, which also receives the secrets. None without a log.
        open_sealed: Opens a sealed secret, in a thread. None if this program cannot open secrets.
        on_open: Called with the name and the revision of each secret that was opened.
    """

    def __init__(
        self,
        process: Masker | None = None,
        open_sealed: Callable[[str], OpenedSecret] | None = None,
        on_open: Callable[[str, int], None] | None = None,
    ) -> None:
        self.masker = Masker(teaches=process)
        self._keys: dict[str, None] = {}
        self._open_sealed = open_sealed
        self._on_open = on_open
        self._values: dict[str, str] = {}
        self._failed: dict[str, CcmError] = {}

    def refuse(self, make_error: Callable[[], CcmError]) -> None:
        """Refuse to open secrets in this run, and raise this error instead."""

        def refused(_name: str) -> OpenedSecret:
            raise make_error()

        self._open_sealed = refused

    def open(self, name: str) -> str:
        """See `templates.env.SecretSource`. The value of a secret does not change during the run."""
        if name not in self._values:
            if self._open_sealed is None:
                raise ExpressionError(
                    f"the secret {name} cannot be opened here: only agents open secrets, in their runs"
                )
            opened = self._open_sealed(name)
            self.masker.learn(opened.value)
            if self._on_open is not None:
                self._on_open(name, opened.revision)
            self._values[name] = opened.value.reveal()
        return self._values[name]

    def opened(self, data: dict[str, Any]) -> dict[str, Any]:
        """
        Return the data, with each `secret://NAME` replaced by the value of the secret. Blocking.

        A secret that cannot be opened remains a reference, because the run may not need it. `require_opened` refuses it on use.
        """
        return {key: self._opened(value) for key, value in data.items()}

    def _opened(self, value: Any) -> Any:
        if isinstance(value, str):
            found = _REFERENCE.fullmatch(value) if value.startswith(SECRET_URL) else None
            return value if found is None else self._try_open(found[1], value)
        if isinstance(value, dict):
            return {key: self._opened(one) for key, one in value.items()}
        return [self._opened(one) for one in value] if isinstance(value, list) else value

    def _try_open(self, name: str, reference: str) -> str:
        if name not in self._failed:
            try:
                return self.open(name)
            except CcmError as err:
                self._failed[name] = err
        return reference

    def require_opened(self, value: object) -> None:
        """See `templates.env.SecretSource`."""
        if not self._failed:
            return
        text = value.decode(errors="replace") if isinstance(value, bytes) else value
        if isinstance(text, str):
            # other text may follow the name, because a template may have put the reference into a longer text
            for name in self._failed if SECRET_URL in text else ():
                if f"{SECRET_URL}{name}" in text:
                    raise self._failed[name]
        elif isinstance(text, Mapping):
            for inner in text.values():
                self.require_opened(inner)
        elif isinstance(text, list):
            for inner in text:
                self.require_opened(inner)

    def are_in(self, declared: ResolvedResource) -> bool:
        """Whether the properties of a resource contain a secret that this run has opened."""
        return bool(self._values) and self._holds(msgspec.to_builtins(declared.wanted))

    def _holds(self, value: Any) -> bool:
        if isinstance(value, str):
            return any(one in value for one in self._values.values())
        if isinstance(value, Mapping):
            return any(map(self._holds, value.values()))
        return isinstance(value, list) and any(map(self._holds, value))

    def refuse_exposed(self, *resources: ResolvedResource) -> None:
        """Make resources with a secret in a command fail, because every user of the host can read commands."""
        for declared in resources if self._values else ():
            commands = declared.kind.rules.commands
            for field in (*sorted(commands), "name") if commands else ():
                if field not in declared.pending and self._holds(getattr(declared.wanted, field, None)):
                    declared.refused = declared.refused or PropertyError(
                        f"{declared.kind.name}: `{field}` contains a secret, and the process list would show it; pass it in "
                        "`environment` or in a file"
                    )

    def declare(self, keys: Sequence[str]) -> None:
        """Treat the values at these keys of the data as secret, in every manifest of the run."""
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
        """Collect the values of variables whose names indicate a secret. Expressions access these variables as `Environ`."""
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
