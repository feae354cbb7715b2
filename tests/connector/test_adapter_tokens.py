"""Requests may share the engine's blocks only if it computed with the same adapter for both."""

import pytest

from kvext.connector.adapter_tokens import AdapterTokens
from kvext.connector.report import AdapterRead
from kvext.errors import IdentityUnknown
from kvext.protocol.digest import WeightsSnapshot
from kvext.protocol.digest_cache import FileIdentity


def state_of(number: int) -> WeightsSnapshot:
    return (("adapter_model.safetensors", FileIdentity(1, 1, 100, number, number)),)


class Files:
    """The adapter folder as a test has set it."""

    def __init__(self) -> None:
        self.state: WeightsSnapshot | None = state_of(1)

    def __call__(self, path: str) -> WeightsSnapshot:
        if self.state is None:
            raise IdentityUnknown(path, "the adapter is not a local folder")
        return self.state


@pytest.fixture
def files() -> Files:
    return Files()


@pytest.fixture
def tokens(files: Files) -> AdapterTokens:
    return AdapterTokens(files)


def test_token_stays_while_the_files_do_and_the_engine_reads_them_again(
    tokens: AdapterTokens,
) -> None:
    first = tokens.token(1, "a")
    tokens.note(AdapterRead(1, state_of(1)))
    assert tokens.token(1, "a") == first
    tokens.note(AdapterRead(1, state_of(1)))
    assert tokens.token(1, "a") == first


def test_engines_that_read_the_same_files_have_the_same_token(files: Files) -> None:
    assert AdapterTokens(files).token(1, "a") == AdapterTokens(files).token(1, "elsewhere")


def test_between_a_change_and_the_reload_every_request_stands_alone(
    tokens: AdapterTokens, files: Files
) -> None:
    first = tokens.token(1, "a")
    tokens.note(AdapterRead(1, state_of(1)))
    files.state = state_of(2)
    between = {tokens.token(1, "a"), tokens.token(1, "a")}
    assert len(between | {first}) == 3
    tokens.note(AdapterRead(1, state_of(2)))
    after = tokens.token(1, "a")
    assert after == tokens.token(1, "a")
    assert after not in between | {first}


def test_adapter_that_was_read_before_its_files_changed_does_not_lend_its_token_to_the_new_ones(
    tokens: AdapterTokens, files: Files
) -> None:
    files.state = state_of(2)
    computed_with_the_old = tokens.token(1, "a")
    tokens.note(AdapterRead(1, state_of(1)))
    tokens.note(AdapterRead(1, state_of(2)))
    assert tokens.token(1, "a") != computed_with_the_old


def test_files_that_moved_while_they_were_read_give_no_token_to_share(
    tokens: AdapterTokens,
) -> None:
    tokens.note(AdapterRead(1, None))
    assert tokens.token(1, "a") != tokens.token(1, "a")


def test_adapter_without_a_folder_is_said_to_be_unknown(
    tokens: AdapterTokens, files: Files
) -> None:
    files.state = None
    with pytest.raises(IdentityUnknown):
        tokens.token(1, "org/adapter")
