"""Which paths, URLs and names a pattern of a policy means."""

from __future__ import annotations

import time

import pytest

from ccm_agent.model.errors import PropertyError
from ccm_agent.policy.globs import matches_name, path_glob, source_glob


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        pytest.param("/etc/motd", "/etc/motd", True, id="the very path"),
        pytest.param("/etc/motd", "/etc/motd2", False, id="not one that begins alike"),
        pytest.param("/etc/motd", "/etc/motd/x", False, id="not what lies below it"),
        pytest.param("/etc/*.conf", "/etc/a.conf", True, id="a star within a name"),
        pytest.param(
            "/etc/*.conf", "/etc/.conf", True, id="a star is also nothing, and means hidden files too"
        ),
        pytest.param("/etc/*", "/etc/a/b", False, id="a star never reaches across a slash"),
        pytest.param("/etc/?", "/etc/ab", False, id="a question mark is one character"),
        pytest.param("/etc/[ab]", "/etc/b", True, id="one of several characters"),
        pytest.param("/srv/**", "/srv", True, id="two stars at the end mean the directory itself"),
        pytest.param("/srv/**", "/srv/a/b/c", True, id="two stars at the end mean all below it"),
        pytest.param("/srv/**", "/srv2/a", False, id="two stars at the end mean no neighbor"),
        pytest.param("/srv/**/x", "/srv/x", True, id="two stars in the middle may be nothing"),
        pytest.param("/srv/**/x", "/srv/a/b/x", True, id="two stars in the middle are any directories"),
        pytest.param("/srv/**/x", "/srv/a/b/y", False, id="after two stars the rest still counts"),
        pytest.param("/**", "/anything/at/all", True, id="everything"),
        pytest.param("/srv/A", "/srv/a", False, id="case counts"),
        pytest.param("/srv/a", "/srv//a", True, id="empty names of a path do not count"),
    ],
)
def test_a_path_pattern_means(pattern: str, path: str, expected: bool) -> None:
    assert path_glob(pattern).matches(path) is expected


@pytest.mark.parametrize(
    ("pattern", "directory", "covers", "reaches"),
    [
        pytest.param("/srv/**", "/srv", True, True, id="the directory of the pattern"),
        pytest.param("/srv/**", "/srv/a/b", True, True, id="a directory below it"),
        pytest.param("/srv/**", "/", False, True, id="a directory above it"),
        pytest.param("/srv/**", "/etc", False, False, id="another directory"),
        pytest.param("/srv/*", "/srv", False, True, id="a star covers no tree"),
        pytest.param("/srv/*", "/srv/a", False, True, id="nor that of a directory that it means"),
        pytest.param("/etc/shadow", "/etc", False, True, id="a file lies in its directory"),
        pytest.param("/etc/shadow", "/etc/shadow", False, True, id="the path itself"),
        pytest.param(
            "/etc/shadow", "/etc/shadow/x", False, False, id="nothing lies below a path without stars"
        ),
        pytest.param("/**/.ssh/**", "/home", False, True, id="anywhere below"),
        pytest.param("/**/.ssh/**", "/home/bob/.ssh", True, True, id="anywhere, covered"),
    ],
)
def test_a_pattern_and_a_directory_with_all_that_is_in_it(
    pattern: str, directory: str, covers: bool, reaches: bool
) -> None:
    glob = path_glob(pattern)

    assert (glob.covers(directory), glob.reaches_into(directory)) == (covers, reaches)


@pytest.mark.parametrize(
    ("pattern", "url", "expected"),
    [
        pytest.param("https://host/**", "https://host/a/b.tgz", True, id="any path"),
        pytest.param(
            "https://host/**", "https://HOST:443/a?token=x", True, id="case, default port and query"
        ),
        pytest.param("https://host/**", "http://host/a", False, id="another scheme"),
        pytest.param("https://host/**", "https://host:8443/a", False, id="another port"),
        pytest.param("https://host/**", "https://host@evil/a", False, id="a host that is only a user"),
        pytest.param("https://host/pub/**", "https://host/pub/../x", False, id="dots that lead out"),
        pytest.param("https://host/pub/**", "https://host/pub/%2e%2e/x", False, id="dots in disguise"),
        pytest.param("https://host/pub/**", "https://host/x", False, id="another path"),
        pytest.param("https://*.example.net/**", "https://a.example.net/x", True, id="a star in the host"),
        pytest.param("https://host/**", "https://host\\@evil/a", False, id="a backslash"),
        pytest.param("https://host/**", "https://[::1/", False, id="no URL at all"),
    ],
)
def test_a_url_pattern_means(pattern: str, url: str, expected: bool) -> None:
    glob = source_glob(pattern)

    assert glob.matches(url) is expected


@pytest.mark.parametrize(
    "pattern", ["etc/motd", "/etc/", "/etc/../x", "//etc", "/etc//x", "/etc/**x", "/etc/./x", ""]
)
def test_a_path_pattern_that_would_never_match_is_refused(pattern: str) -> None:
    with pytest.raises(PropertyError):
        path_glob(pattern)


@pytest.mark.parametrize("pattern", ["ftp://host/**", "https:///x", "https://host/../x", "relative"])
def test_a_source_that_is_neither_path_nor_url_is_refused(pattern: str) -> None:
    with pytest.raises(PropertyError):
        source_glob(pattern)


def test_a_long_path_and_many_stars_take_no_time() -> None:
    glob = path_glob("/**/a*a*a/**/a*a*a/**/b")
    path = "/" + "/".join(["a" * 200] * 2000)

    began = time.monotonic()

    assert not glob.matches(path)
    assert time.monotonic() - began < 1


def test_names_are_compared_with_case() -> None:
    assert matches_name("nginx-full", ["apache*", "nginx*"])
    assert not matches_name("Nginx", ["nginx*"])
    assert not matches_name("nginx", [])
