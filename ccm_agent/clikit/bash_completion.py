"""
Completion in bash that reads the whole command line.

bash splits `role=web` into three words and replaces only the last of them. The program needs the whole word, so it parses the
line itself. From its completions, it removes the part of the word that bash keeps.
"""

from __future__ import annotations

import os
from typing import Any

from click.shell_completion import BashComplete, CompletionItem, ShellComplete, split_arg_string

_BREAKS = "=:"
"""Characters at which bash splits a word, unless COMP_WORDBREAKS is set."""

_BASH = """\
%(complete_func)s() {
    local IFS=$'\\n' response line type value
    response=$(env COMP_LINE="$COMP_LINE" COMP_POINT="$COMP_POINT" COMP_WORDBREAKS="$COMP_WORDBREAKS" \\
        %(complete_var)s=bash_complete "$1")
    for line in $response; do
        IFS=',' read -r type value <<< "$line"
        case $type in
            dir) COMPREPLY=(); compopt -o dirnames ;;
            file) COMPREPLY=(); compopt -o default ;;
            plain) COMPREPLY+=("$value"); [[ $value == *= ]] && compopt -o nospace ;;
        esac
    done
    return 0
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""


class LineComplete(BashComplete):
    """Completes the words of COMP_LINE at COMP_POINT, ignoring bash's own word splitting."""

    source_template = _BASH
    _kept = 0

    def source(self) -> str:
        """Return the script. Does not check the version of bash, because that would start a bash process."""
        return ShellComplete.source(self)

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the current word, and the part of the current word that is already typed."""
        line = os.environ["COMP_LINE"][: int(os.environ["COMP_POINT"])]
        words = split_arg_string(line)[1:]
        incomplete = words.pop() if words and not line[-1:].isspace() else ""
        breaks = set(_BREAKS) & set(os.environ.get("COMP_WORDBREAKS", _BREAKS))
        self._kept = max((incomplete.rfind(mark) + 1 for mark in breaks), default=0)
        return words, incomplete

    def format_completion(self, item: CompletionItem[Any]) -> str:
        """Return a completion without the part of the word that bash keeps."""
        return f"{item.type},{item.value[self._kept :]}"
