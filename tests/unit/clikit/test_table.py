"""Tables: columns that fit, and texts that a terminal does not obey."""

from __future__ import annotations

from ccm_agent.clikit.table import Cell, Column, Style, paint, table

COLUMNS = [Column("NODE"), Column("STATE"), Column("NOTE", fold=True), Column("AGE", right=True)]
ROWS = [
    ["web1", Cell("present", "good"), "", "5 s"],
    ["db\x1b[1m", "offline", "a note that is long", "12 min"],
]


def test_a_table_has_the_columns_that_say_something() -> None:
    assert table(COLUMNS, ROWS, Style()) == (
        "NODE       STATE    NOTE                    AGE\n"
        "web1       present                          5 s\n"
        "db\\x1b[1m  offline  a note that is long  12 min\n"
    )
    assert table(COLUMNS, [["web1", "present", "", ""]], Style()) == "NODE  STATE\nweb1  present\n"


def test_what_may_be_folded_is() -> None:
    assert table(COLUMNS, ROWS, Style(width=40)) == (
        "NODE       STATE    NOTE             AGE\n"
        "web1       present                   5 s\n"
        "db\\x1b[1m  offline  a note that   12 min\n"
        "                    is long\n"
    )


def test_no_rows_are_no_table() -> None:
    assert table(COLUMNS, [], Style()) == ""


def test_wide_characters_take_their_room() -> None:
    assert (
        table([Column("A"), Column("B")], [["漢字", "x"], ["é", "y"]], Style())
        == "A     B\n漢字  x\né     y\n"
    )


def test_colour_is_for_terminals_and_for_each_line() -> None:
    assert paint("a\nb", "bad", Style(colour=True)) == "\x1b[31ma\x1b[0m\n\x1b[31mb\x1b[0m"
    assert paint("a", "bad", Style()) == "a"
    assert paint("a", "", Style(colour=True)) == "a"


def test_what_can_be_spared_goes_before_the_rest_is_hard_to_read() -> None:
    columns = [Column("NAME"), Column("FOR", fold=True), Column("BY", spare=2), Column("SINCE", spare=1)]
    rows = [["web", "role=web where x", "ann", "2 min ago"]]

    assert table(columns, rows, Style(width=40)) == (
        "NAME  FOR               BY   SINCE\nweb   role=web where x  ann  2 min ago\n"
    )
    assert table(columns, rows, Style(width=37)) == (
        "NAME  FOR               SINCE\nweb   role=web where x  2 min ago\n"
    )
    assert table(columns, rows, Style(width=30)) == "NAME  FOR\nweb   role=web where x\n"


def test_nothing_is_cut_off_however_narrow_it_is() -> None:
    columns = [Column("RUN"), Column("WHAT", fold=True)]
    rows = [["3MQMUbgbqe", "applies what is there"]]

    assert table(columns, rows, Style(width=20)) == (
        "RUN         WHAT\n3MQMUbgbqe  applies\n            what is\n            there\n"
    )
    assert table(columns, rows, Style(width=14)) == (
        "RUN     WHAT\n3MQMUb  applie\ngbqe    s what\n        is\n        there\n"
    )
