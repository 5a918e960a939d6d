import pytest

from ccm_agent.model.errors import FileError
from ccm_agent.system.accounts import AccountNames, group_id, user_id


@pytest.mark.parametrize(
    ("text", "number"),
    [
        pytest.param("0", 0, id="root"),
        pytest.param("000", 0, id="noughts"),
        pytest.param("0054321", 54321, id="leading noughts"),
        pytest.param("4294967294", 4294967294, id="the largest"),
        pytest.param("", -1, id="nothing leaves it as it is"),
    ],
)
def test_digits_are_a_number_whatever_the_system_knows(text: str, number: int) -> None:
    assert (user_id(text), group_id(text)) == (number, number)


@pytest.mark.parametrize("text", ["4294967295", "4294967296", "99999999999999999999"])
def test_a_number_that_no_user_can_have_is_refused(text: str) -> None:
    with pytest.raises(FileError) as caught:
        user_id(text)

    assert caught.value.message == f"user {text} is out of range: the maximum is 4294967294"


@pytest.mark.parametrize("text", ["no-such-one", "-1", " root", "٣", "a\0b"])
def test_an_unknown_user_is_named(text: str) -> None:
    with pytest.raises(FileError) as of_user:
        user_id(text)
    with pytest.raises(FileError) as of_group:
        group_id(text)

    assert of_user.value.message == f"there is no user {text!r} on this machine"
    assert of_group.value.message == f"there is no group {text!r} on this machine"


def test_numbers_have_names_where_the_system_knows_them() -> None:
    names = AccountNames()

    assert (names.user(0), names.group(0), names.user(54321), names.group(54321)) == (
        "root",
        "root",
        "54321",
        "54321",
    )
