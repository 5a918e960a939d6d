"""Tables: columns that fit, and texts that a terminal does not obey."""

from __future__ import annotations

import random

import pytest

from ccm_agent.clikit import table as tables
from ccm_agent.clikit.table import Amount, Cell, Column, Style, paint, table

COLUMNS = [Column("NODE"), Column("STATE"), Column("NOTE", fold=True), Column("AGE", right=True)]
ROWS = [
    ["web1", Cell("present", "good"), "", "5s"],
    ["db\x1b[1m", "offline", "a note that is long", "12m"],
]


def test_a_table_has_the_columns_that_say_something() -> None:
    assert table(COLUMNS, ROWS, Style()) == (
        "NODE       STATE    NOTE                 AGE\n"
        "web1       present                        5s\n"
        "db\\x1b[1m  offline  a note that is long  12m\n"
    )
    assert table(COLUMNS, [["web1", "present", "", ""]], Style()) == "NODE  STATE\nweb1  present\n"


def test_a_long_text_is_folded_within_its_column() -> None:
    rows = [ROWS[0], ["db1", "offline", "a note that is so long that it takes more than one line", "12m"]]

    assert table(COLUMNS, rows, Style(width=60)) == (
        "NODE  STATE    NOTE                                      AGE\n"
        "web1  present                                             5s\n"
        "db1   offline  a note that is so long that it takes      12m\n"
        "               more than one line\n"
    )


def test_no_rows_print_no_table() -> None:
    assert table(COLUMNS, [], Style()) == ""


def test_wide_characters_take_their_room() -> None:
    assert (
        table([Column("A"), Column("B")], [["漢字", "x"], ["é", "y"]], Style())
        == "A     B\n漢字  x\né     y\n"
    )


def test_color_is_for_terminals_and_for_each_line() -> None:
    assert paint("a\nb", "bad", Style(color=True)) == "\x1b[31ma\x1b[0m\n\x1b[31mb\x1b[0m"
    assert paint("a", "bad", Style()) == "a"
    assert paint("a", "", Style(color=True)) == "a"


def test_spare_columns_are_dropped_before_others_get_too_narrow() -> None:
    columns = [Column("NAME"), Column("FOR", fold=True), Column("BY", spare=2), Column("SINCE", spare=1)]
    name = "the-name-of-an-assignment-of-some-length"
    rows = [[name, "role=web where x", "ann", "2m ago"]]

    assert table(columns, rows, Style(width=72)) == (
        f"{'NAME':<40}  FOR               BY   SINCE\n{name}  role=web where x  ann  2m ago\n"
    )
    assert table(columns, rows, Style(width=70)) == (
        f"{'NAME':<40}  FOR               SINCE\n{name}  role=web where x  2m ago\n"
    )
    assert table(columns, rows, Style(width=60)) == f"{'NAME':<40}  FOR\n{name}  role=web where x\n"


def test_a_narrow_terminal_gets_a_block_for_each_row_that_does_not_fit() -> None:
    assert table(COLUMNS, ROWS, Style(width=40)) == (
        "web1\n  STATE  present\n  AGE    5s\n"
        "\n"
        "db\\x1b[1m\n  STATE  offline\n  NOTE   a note that is long\n  AGE    12m\n\n"
    )
    assert table(COLUMNS, ROWS, Style(width=47)).startswith("NODE ")


def test_nothing_is_cut_off_however_narrow_it_is() -> None:
    columns = [Column("RUN"), Column("WHAT", fold=True)]
    rows = [["3MQMUbgbqe3MQMUbgbqe3M", "applies what-is-there-and-more"]]

    assert table(columns, rows, Style(width=20)) == (
        "3MQMUbgbqe3MQMUbgbqe\n3M\n  WHAT  applies\n        what-is-ther\n        e-and-more\n\n"
    )


def test_nodes_that_read_alike_share_a_row_on_a_terminal() -> None:
    columns = [Column("NODE", names=True), Column("STATE"), Column("LAST RUN")]
    rows = [
        [name, Cell(state, "good"), Cell(last, "change", Amount(f"{minutes}m ago", minutes))]
        for name, state, last, minutes in (
            ("web1", "present", "changed", 5),
            ("db1", "present", "stable", 2),
            ("web2", "present", "changed", 12),
            ("web10", "present", "changed", 3),
        )
    ]

    assert table(columns, rows, Style(merges=True)) == (
        "NODE         STATE    LAST RUN\n"
        "web[1-2,10]  present  changed 3m ago … 12m ago\n"
        "db1          present  stable 2m ago\n"
    )
    assert len(table(columns, rows, Style()).splitlines()) == 5


def test_nodes_whose_texts_differ_in_meaning_alone_keep_their_rows() -> None:
    columns = [Column("NODE", names=True), Column("STATE")]
    rows = [["web1", Cell("stable", "good")], ["web2", Cell("stable", "quiet")]]

    assert len(table(columns, rows, Style(merges=True)).splitlines()) == 3


@pytest.mark.parametrize("seed", range(40))
def test_rows_that_fit_on_a_line_look_as_rich_lays_them_out(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = random.Random(seed)
    words = ["", "a", "web1", "desired state", "ein größeres Wort", "日本", "e\u0301", "x" * 30, "1.5", "🚀"]
    columns = [
        Column(drawn.choice(["N", "STATE", "größe"]), right=drawn.random() < 0.3, fold=drawn.random() < 0.5)
        for _ in range(drawn.randint(1, 5))
    ]
    rows = [
        [Cell(drawn.choice(words), drawn.choice(["", "good", "bad"])) for _ in columns]
        for _ in range(drawn.randint(1, 8))
    ]
    style = Style(width=drawn.choice([80, 200, tables.UNLIMITED]))

    ours = table(columns, rows, style)
    monkeypatch.setattr(tables, "_lines", tables._grid)

    assert ours == table(columns, rows, style)
