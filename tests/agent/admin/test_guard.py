"""Who may ask, and who may order."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvext.agent.admin.guard import host_is_trusted, is_admin, read_token
from kvext.errors import InvalidOption

_TOKEN = b"0123456789abcdef"


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.0.0.1:8765", "localhost", "LOCALHOST:1", "[::1]:80", "[::1]", "10.1.2.3:8"],
)
def test_addresses_and_localhost_are_trusted(host: str) -> None:
    assert host_is_trusted(host)


@pytest.mark.parametrize(
    "host",
    [
        *(None, "", "evil.example", "evil.example:8765", "localhost.evil.example"),
        *("127.0.0.1.evil.io", "127.0.0.1:80:80", "localhost:x", "[::1]evil", "[::1"),
        *("0x7f.1", "a" * 200, "localhost@e"),
    ],
)
def test_names_that_can_be_made_to_point_here_are_not(host: str | None) -> None:
    assert not host_is_trusted(host)


@given(st.text())
def test_no_header_makes_the_check_fail(text: str) -> None:
    host_is_trusted(text)
    assert not is_admin(text, _TOKEN) or text.endswith(_TOKEN.decode())


def test_only_the_whole_token_is_the_admins() -> None:
    assert is_admin("Bearer 0123456789abcdef", _TOKEN)
    for given_token in ("Bearer ", "Bearer 0123456789abcde", "0123456789abcdef", "Bearer é", None):
        assert not is_admin(given_token, _TOKEN)


def test_token_is_read_without_the_line_end(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_bytes(_TOKEN + b"\n")
    assert read_token(file) == _TOKEN


@pytest.mark.parametrize("content", [b"", b"short", b"x" * 5000])
def test_token_that_is_no_secret_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    with pytest.raises(InvalidOption, match="openssl rand"):
        read_token(file)


def test_missing_token_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="nowhere"):
        read_token(tmp_path / "nowhere")
