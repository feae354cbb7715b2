"""Options: defaults without a file, sizes, and errors that say what to write instead."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvext.config import Config, describe_options, format_bytes, load_config, parse_bytes
from kvext.errors import ConfigFileError, InvalidOption, UnknownOption


def test_no_options_give_the_defaults() -> None:
    assert load_config({}) == Config()


def test_inline_options_win_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "kvext.toml"
    file.write_text('pool_size = "1GiB"\nload = "async"\n')
    config = load_config({"config": str(file), "pool_size": "2GiB"})
    assert (config.pool_size, config.load) == ("2GiB", "async")


def test_unknown_option_is_refused_with_the_nearest_known_name() -> None:
    with pytest.raises(UnknownOption, match="'pool_szie'; did you mean 'pool_size'"):
        load_config({"pool_szie": "1GiB"})


def test_unknown_option_that_is_like_no_other_is_refused_with_all_names() -> None:
    with pytest.raises(UnknownOption, match="use one of pool_size, pool_name"):
        load_config({"zzz": 1})


def test_unknown_option_in_the_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "kvext.toml"
    file.write_text("stor = false\n")
    with pytest.raises(UnknownOption, match="did you mean 'store'"):
        load_config({"config": str(file)})


@pytest.mark.parametrize(
    ("option", "value", "remedy"),
    [
        ("pool_size", 5, "write a number and a unit"),
        ("pool_size", "0", "between 1 byte"),
        ("pool_size", "64", "a number alone means bytes"),
        ("pool_size", "-1GiB", "write a number and a unit"),
        ("pool_size", "1 potato", "write a number and a unit"),
        ("pool_name", "../other", "use letters"),
        ("pool_name", ".hidden", "use letters"),
        ("pool_name", "line\n", "use letters"),
        ("pool_name", "", "use letters"),
        ("pool_folder", "relative", "give an absolute path"),
        ("load", "later", 'give "async" or "blocking" or "sync"'),
        ("store", 1, "give true or false"),
        ("lease_s", 0, "above 0"),
        ("lock_wait_s", float("nan"), "above 0"),
        ("digest_wait_s", float("inf"), "above 0"),
        ("lease_s", True, "above 0"),
        ("config", 3, "give the path"),
    ],
)
def test_impossible_value_is_refused_with_its_option_and_a_remedy(
    option: str, value: object, remedy: str
) -> None:
    with pytest.raises(InvalidOption, match=remedy) as caught:
        load_config({option: value})
    assert caught.value.option == option
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize("content", [None, "load = ", b"\xff\xfe"])
def test_unusable_file_is_named(tmp_path: Path, content: str | bytes | None) -> None:
    file = tmp_path / "kvext.toml"
    if content is not None:
        file.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(ConfigFileError, match=r"kvext\.toml"):
        load_config({"config": str(file)})


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        ("4096", 4096),
        ("1b", 1),
        ("64GiB", 64 << 30),
        ("64gb", 64 << 30),
        (" 1.5 g ", 3 << 29),
        ("2TiB", 2 << 40),
        ("3k", 3072),
    ],
)
def test_size_is_read_in_powers_of_1024(text: str, num_bytes: int) -> None:
    assert parse_bytes(text) == num_bytes


@given(st.text())
def test_size_is_read_or_refused_whatever_is_written(text: str) -> None:
    num_bytes = 1
    with contextlib.suppress(InvalidOption):
        num_bytes = parse_bytes(text)
    assert 1 <= num_bytes < 2**63


@given(st.integers(1, 1023), st.sampled_from(["B", "KiB", "MiB", "GiB", "TiB"]))
def test_whole_units_are_shown_as_they_are_written(count: int, unit: str) -> None:
    assert format_bytes(parse_bytes(f"{count} {unit}")) == f"{count} {unit}"


def test_size_between_units_is_shown_with_one_decimal() -> None:
    assert format_bytes(3 << 29) == "1.5 GiB"


def test_pool_bytes_is_none_for_a_size_that_is_left_to_kvext() -> None:
    assert Config().pool_bytes is None
    assert Config(pool_size="1MiB").pool_bytes == 1 << 20


def test_every_option_is_described_once_with_its_default() -> None:
    options = list(describe_options())
    assert [option.name for option in options] == list(Config.__struct_fields__)
    assert all(option.description.endswith(".") for option in options)
    assert all(getattr(Config(), option.name) == option.default for option in options)
