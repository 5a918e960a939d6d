"""The listed examples of Choria CCM's documentation, and the grounds on which their steps are run."""

from __future__ import annotations

import json
import re
import subprocess
import tarfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

PAGES = Path(__file__).parents[1] / "examples/pages"
Run = Callable[[Sequence[str], str, Mapping[str, str]], "subprocess.CompletedProcess[str]"]
"""Runs a command in the example's folder: its words, standard input, further variables."""


def read_pages() -> dict[str, dict[str, Any]]:
    """Each page by its name."""
    texts = {path.stem.replace("+", "/"): path.read_text(encoding="utf-8") for path in PAGES.glob("*.yaml")}
    return {name: yaml.safe_load(text) for name, text in sorted(texts.items())}


class Ground:
    """
    A folder in which examples are run.

    Args:
        folder: Its path as the commands see it.
        at: Where a path of the commands is for us.
        run: Runs a command there.
        words: What stands for @USER@, @GROUP@, @WEB@ and so on in all texts of an example; @DIR@ is the folder.
    """

    def __init__(self, folder: str, at: Callable[[str], Path], run: Run, words: Mapping[str, str]) -> None:
        self._folder = folder
        self._at = at
        self._run = run
        self._words = {"@DIR@": folder, **words}

    def play(self, example: Mapping[str, Any]) -> list[str]:
        """Lay the files and run the steps; what did not go as the example says, if anything."""
        self._lay(example)
        env = {name: self._text(value) for name, value in example.get("env", {}).items()}
        for step in example["steps"]:
            done = self._run(self._command(step), self._text(step.get("stdin", "")), env)
            if found := [*self._answer_problems(step, done), *self._file_problems(step.get("after", {}))]:
                return [*found, f"{step}: exit status {done.returncode}\n{done.stdout}{done.stderr}"]
        return self._file_problems(example.get("after", {}))

    def _command(self, step: Mapping[str, Any]) -> list[str]:
        if "sh" in step:
            return ["sh", "-euc", self._text(step["sh"])]
        return ["ccm", *map(self._text, step["ccm"])]

    def _text(self, text: str) -> str:
        return re.sub(r"@[A-Z]+@", lambda found: self._words.get(found[0], found[0]), text)

    def _path(self, name: str) -> Path:
        return self._at(name if name.startswith("/") else f"{self._folder}/{name}")

    def _lay(self, example: Mapping[str, Any]) -> None:
        for name, content in example.get("files", {}).items():
            path = self._path(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self._text(content), encoding="utf-8")
        for name, source in example.get("pack", {}).items():
            with tarfile.open(self._path(name), "w:gz") as tar:
                tar.add(self._path(source), arcname=".")

    def _answer_problems(self, step: Mapping[str, Any], done: subprocess.CompletedProcess[str]) -> list[str]:
        found = []
        if done.returncode != step.get("exit", 0):
            found.append(f"ended with {done.returncode}, not {step.get('exit', 0)}")
        for wanted in map(self._text, step.get("says", [])):
            if wanted not in done.stdout + done.stderr:
                found.append(f"does not say: {wanted}")
        if "prints" in step and done.stdout != self._text(step["prints"]):
            found.append(f"prints something else than {self._text(step['prints'])!r}")
        if "json" in step and not _holds(
            json.loads(done.stdout), json.loads(self._text(json.dumps(step["json"])))
        ):
            found.append(f"does not hold {step['json']}")
        return found

    def _file_problems(self, after: Mapping[str, Any]) -> list[str]:
        """What is not as `after` says: a text, null for nothing there, or {mode: …}."""
        found = []
        for name, wanted in after.items():
            path = self._path(name)
            if wanted is None:
                wrong = path.exists() or path.is_symlink()
            elif isinstance(wanted, dict):
                wrong = not path.exists() or f"{path.stat().st_mode & 0o7777:04o}" != wanted["mode"]
            else:
                wrong = not path.is_file() or path.read_text(encoding="utf-8") != self._text(wanted)
            if wrong:
                found.append(f"{name}: {path.read_text() if path.is_file() else path.exists()!r}")
        return found


def _holds(found: Any, wanted: Any) -> bool:
    """Whether all that is wanted is there; what else a mapping holds is its own affair."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(
            key in found and _holds(found[key], wanted[key]) for key in wanted
        )
    return bool(found == wanted)
