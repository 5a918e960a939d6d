"""
The documentation as a reader follows it: the shell blocks of a page, run in order in one terminal.

The blocks of `sh` and `console` of a page become one script. Its output is compared where the page shows it: below a `$` line of
a `console` block, and in a `text` block that follows a `sh` block directly. Ids, digests and times count as equal, durations and
line breaks do not count, and a line that is only "…" is any number of lines. Questions are answered with yes. A command whose
comment says Ctrl-C is interrupted after a second.

A comment on the line above a block says that it is not run with the others:

    <!-- run: machine -->     it is run as root on a machine of the tests' own: tests/host/test_pages.py
    <!-- run: NAME -->        likewise, with others of that name: tests/host/test_own_packages.py
    <!-- not run: REASON -->  it is not run; pages.yaml says how many such blocks a page may have

A `yaml` block whose first line is a comment with a file's name, such as `# manifest.yaml`, is that file.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import pty
import re
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path

import msgspec
import yaml
from msgspec import Struct

TOP = Path(__file__).resolve().parents[2]
WIDTH = 132
LIMIT_S = 60.0
"""How long a page may take; only a page that hangs takes so long."""

INSIDE = ("bus.md", "delivery.md")
"""Contributors' pages whose commands operators use."""

_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)$")
_MARK = re.compile(r"^<!-- (?P<kind>run|not run): (?P<words>.+) -->$")
_FILE = re.compile(r"^# (?P<path>[\w./-]+\.yaml)$")
_QUESTIONS = ("[y/N] ", "[y/N/d = show diff] ")
_FIELD = "\036"
"""Stands before and after each mark that the script prints between the output of commands."""

_VARYING = [
    (re.compile(r"\x1b\[[0-9;?]*[A-Za-z]"), ""),
    (re.compile(r"\b(?=[A-Za-z]*[0-9])(?=[0-9]*[A-Za-z])([0-9A-Za-z]{8}|[0-9A-Za-z]{27})\b"), "ID"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?Z?"), "TIME"),
    (re.compile(r"\b\d{13}\b"), "NUMBER"),
    (re.compile(r"\b[0-9a-f]{12,64}\b"), "DIGEST"),
    (re.compile(r"((for|≤) )?(just now|\b(\d+(\.\d+)? ?(ns|µs|ms|min|s|m|h|d))+\b( ago)?)"), ""),
    (re.compile(r" +(?=[:;,])"), ""),
]


class Block(Struct, frozen=True, kw_only=True):
    """
    A fenced block of a page.

    Attributes:
        line: Where it begins.
        language: The word behind the fence; "" for none.
        text: What it holds.
        kind: How its mark begins: "", `run` or `not run`.
        words: The rest of the mark: who runs it, or why it is not run.
        output: The text that the page shows as its output; None: it shows none.
    """

    line: int
    language: str
    text: str
    kind: str = ""
    words: str = ""
    output: str | None = None

    @property
    def is_typed(self) -> bool:
        """A reader types it."""
        return self.language in ("sh", "console")


class Setting(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    What pages.yaml says of a page.

    Attributes:
        fleet: Where it runs: `trio` (web1 and web2 with the role web, db1 with the role db), `secured` (web1, with credentials),
            `none` (no broker, and the real programs), or `machine` (as root, on a machine of the tests' own).
        before: A script that brings about what the page presumes.
        scenes: Likewise, just before a block, by the beginning of its text.
        machine: As `before`, on the machine for the blocks that are marked `run: machine`.
        replace: Words of the page that have to be others in a test, in commands and in output. In the values of this and of
            `scenes`, {port} is a free port, {tmp} the page's folder, {home} the reader's.
        needs: Programs that this machine must have.
        status: Commands that do not end with 0: how each begins, and its exit status.
        not_run: How many blocks are marked `not run`.
    """

    fleet: str = "trio"
    before: str = ""
    scenes: dict[str, str] = {}
    machine: str = ""
    replace: dict[str, str] = {}
    needs: list[str] = []
    status: dict[str, int] = {}
    not_run: int = 0

    def at(self, **places: object) -> Setting:
        """The setting with what `{port}`, `{tmp}` and `{home}` are."""

        def put(texts: Mapping[str, str]) -> dict[str, str]:
            return {
                name: replaced(text, {f"{{{key}}}": str(to) for key, to in places.items()})
                for name, text in texts.items()
            }

        return msgspec.structs.replace(self, scenes=put(self.scenes), replace=put(self.replace))


class Command(Struct, frozen=True, kw_only=True):
    """A part of a script, and the output that the page shows for it (None: none)."""

    line: int
    text: str
    output: str | None = None


def settings() -> dict[str, Setting]:
    """What pages.yaml says, by page."""
    return msgspec.convert(
        yaml.safe_load((Path(__file__).parent / "pages.yaml").read_text()), dict[str, Setting]
    )


def users_pages() -> dict[str, list[Block]]:
    """The blocks of README.md and of the pages below docs/, without decisions and most pages for contributors."""
    paths = [TOP / "README.md", *sorted((TOP / "docs").rglob("*.md"))]
    return {
        str(path.relative_to(TOP)): list(blocks(path.read_text()))
        for path in paths
        if path.parent.name not in ("adr", "contributing") or path.name in INSIDE
    }


def blocks(markdown: str) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    found: list[tuple[int, str, str, str]] = []
    lines = markdown.splitlines()
    number, above = 0, ""
    while number < len(lines):
        fence = _FENCE.match(lines[number])
        if not fence:
            above = lines[number].strip() or above
            number += 1
            continue
        end = next(at for at in range(number + 1, len(lines)) if lines[at].strip() == "```")
        inside = "".join(line.removeprefix(fence["indent"]) + "\n" for line in lines[number + 1 : end])
        found.append((number + 1, fence["language"], inside, above))
        number, above = end + 1, ""
    for (line, language, text, mark_line), after in zip_longest(found, found[1:]):
        mark = _MARK.match(mark_line)
        shows_output = language == "sh" and after and after[1] == "text" and not after[3]
        yield Block(
            line=line,
            language=language,
            text=text,
            kind=mark["kind"] if mark else "",
            words=mark["words"] if mark else "",
            output=after[2] if after and shows_output else None,
        )


def files(found: Sequence[Block]) -> dict[str, str]:
    """The files that a page shows, by their paths."""
    return {
        name["path"]: block.text
        for block in found
        if block.language == "yaml" and (name := _FILE.match(block.text.partition("\n")[0]))
    }


def commands(found: Sequence[Block], setting: Setting) -> list[Command]:
    """What is typed for these blocks: all of a `sh` block at once, a `console` block command by command."""
    typed = []
    for block in found:
        scenes = [scene for beginning, scene in setting.scenes.items() if block.text.startswith(beginning)]
        typed += [Command(line=block.line, text=scene + "\n") for scene in scenes]
        typed += _commands(block, setting)
    return typed


def _commands(block: Block, setting: Setting) -> Iterator[Command]:
    if block.language == "console":
        line = block.line + 1
        for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
            text, _, output = part.partition("\n")
            yield Command(
                line=line, text=_typed(text, setting) + "\n", output=replaced(output, setting.replace)
            )
            line += part.count("\n")
    else:
        text = "".join(_typed(line, setting) + "\n" for line in block.text.splitlines())
        output = None if block.output is None else replaced(block.output, setting.replace)
        yield Command(line=block.line + 1, text=text, output=output)


def replaced(text: str, words: Mapping[str, str]) -> str:
    """A text with some words replaced by others."""
    for word, other in words.items():
        text = text.replace(word, other)
    return text


def _typed(line: str, setting: Setting) -> str:
    if line.startswith("# "):
        raise AssertionError(f"`{line}` asks the reader to act: end the block there, and write it as text")
    line = replaced(line, setting.replace)
    return f"until_ctrl_c {line}" if "Ctrl-C" in line.partition("#")[2] else line


_PRELUDE = """\
if [ -n "$AGENT" ]; then ccm() { if [ "$1" = agent ]; then command ccm "$@" --config "$AGENT"; else command ccm "$@"; fi; }; fi
until_ctrl_c() { PATH=$REAL:$PATH timeout --preserve-status --signal INT 1 "$@"; }
failed() {
  while IFS=$'\\t' read -r status words; do
    if [ "$1" = "$status" ] && [[ "$2" = "$words"* ]]; then return; fi
  done < <(printf '%s' "$STATUSES")
  printf '\\036failed\\036`%s` ended with %s\\n' "$2" "$1"
  exit 99
}
trap 'failed $? "$BASH_COMMAND"' ERR
"""


def script(typed: Sequence[Command]) -> str:
    """The commands as a script of bash, which prints the number of each command before its output, and `end` behind the last."""
    parts = [f"printf '\\036{number}\\036'\n{one.text}" for number, one in enumerate(typed)]
    return _PRELUDE + "".join(parts) + "printf '\\036end\\036'\n"


def check(typed: Sequence[Command], text: str) -> None:
    """
    Compare what a script wrote to its terminal with the page.

    Raises:
        AssertionError: A command ended with another status than expected, hung, or said something else than the page shows.
    """
    parts = text.split(_FIELD)[1:]
    said = dict(zip(parts[::2], parts[1::2], strict=True))
    for number, one in enumerate(typed):
        out = said.get(str(number), "")
        following = str(number + 1) if number + 1 < len(typed) else "end"
        if following not in said:
            raise AssertionError(f"line {one.line}: {said.get('failed', 'it did not end')}\n{out}")
        if one.output is not None and not is_shown(one.output, out):
            raise AssertionError(
                f"line {one.line}: `{one.text.strip()}` says\n{out}\nand the page shows\n{one.output}\n"
                f"compared as\n{comparable(out)}\n{comparable(one.output)}"
            )


def is_shown(shown: str, out: str) -> bool:
    """A page shows what was said; a line of "…" on the page is any number of lines."""
    parts = [re.escape(comparable(part)) for part in re.split("^…$", shown, flags=re.MULTILINE)]
    return re.fullmatch(" ?.*".join(parts), comparable(out)) is not None


def comparable(text: str) -> str:
    """A text without what differs from run to run."""
    for pattern, word in _VARYING:
        text = pattern.sub(word, text)
    return " ".join(text.split())


def follow(typed: Sequence[Command], setting: Setting, directory: Path, environ: Mapping[str, str]) -> None:
    """Run commands in a terminal, and `check` what comes of them."""
    path = directory / "page.sh"
    path.write_text(script(typed))
    check(typed, in_terminal(["bash", str(path)], {**environ, "STATUSES": statuses(setting)}, directory))


def statuses(setting: Setting) -> str:
    """The commands that do not end with 0, as the script reads them."""
    return "".join(f"{status}\t{words}\n" for words, status in setting.status.items())


def in_terminal(command: Sequence[str], environ: Mapping[str, str], directory: Path | None = None) -> str:
    """What a command writes to a terminal on which each question is answered with yes. Ends all that it started."""
    ours, theirs = pty.openpty()
    try:
        subprocess.run(["stty", "-echo", "cols", str(WIDTH), "rows", "50"], stdin=theirs, check=True)
        process = subprocess.Popen(
            command,
            cwd=directory,
            env=dict(environ),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
    finally:
        os.close(theirs)
    try:
        return _read(ours, process)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(ours)


def _read(terminal: int, process: subprocess.Popen[bytes]) -> str:
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    text, answered = "", 0
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        if not select.select([terminal], [], [], 0.1)[0]:
            if process.poll() is not None:
                break  # a job in the background still has the terminal
            continue
        try:
            data = os.read(terminal, 65536)
        except OSError:  # what a terminal gives when every process that had it is gone
            break
        text += decode(data).replace("\r\n", "\n")
        if text.endswith(_QUESTIONS) and len(text) > answered:
            os.write(terminal, b"y\n")
            text += "\n"
            answered = len(text)
    return text
