"""What commands wrote: nodes with the same output are one block, and only as much is shown as can be read."""

from __future__ import annotations

from ccm_agent.clikit.table import Style
from ccm_ctl.render.output import IN_BRIEF, IN_FULL, CommandOutput, OutputLimits, output_blocks, output_lines

PLAIN = Style()


def test_nodes_with_the_same_output_share_a_block() -> None:
    same, other = CommandOutput("exec#id", "uid=0(root)\n"), CommandOutput("exec#id", "uid=1(bin)\n")

    blocks = output_blocks([("web1", [same]), ("db1", [other]), ("web2", [same])], IN_BRIEF, PLAIN)

    assert blocks == ["web[1-2]: exec#id\n  │ uid=0(root)\n", "db1: exec#id\n  │ uid=1(bin)\n"]


def test_only_so_many_outputs_are_shown_and_the_rest_is_counted() -> None:
    found = [(f"web{number}", [CommandOutput("exec#date", f"{number}")]) for number in range(5)]

    blocks = output_blocks(found, OutputLimits(lines=3, outputs=2), PLAIN)

    assert blocks[:2] == ["web0: exec#date\n  │ 0\n", "web1: exec#date\n  │ 1\n"]
    assert blocks[2:] == ["and 3 other outputs; `ccmctl run show RUN --json` has all\n"]


def test_a_long_output_shows_its_last_lines_and_counts_the_others() -> None:
    text = "".join(f"line {number}\n" for number in range(5))

    assert output_lines(text, 2) == ["  │ … 3 lines above", "  │ line 3", "  │ line 4"]
    assert output_lines(text, 4, is_cut=True)[0] == "  │ … more than 1 line above"
    assert output_lines("all\n", 2, is_cut=True) == ["  │ … cut above", "  │ all"]
    assert output_lines("all\n\n", 2) == ["  │ all"]


def test_output_cannot_draw_on_the_screen() -> None:
    shown = output_lines("\x1b[2Jgone\rover\u202e\n", 5)

    assert shown == ["  │ \\x1b[2Jgone\\x0dover\\u202e"]


def test_the_name_of_a_resource_cannot_draw_on_the_screen() -> None:
    [block] = output_blocks([("web1", [CommandOutput("exec#\x1b[31mx\n", "y")])], IN_FULL, PLAIN)

    assert block == "web1: exec#\\x1b[31mx\n  │ y\n"
