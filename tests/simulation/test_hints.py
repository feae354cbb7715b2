"""Hints say of a conversation only what the trace itself says later."""

from collections.abc import Sequence

import pytest

from kvext.simulation.generators import Chat, generate
from kvext.simulation.hints import find_sessions, with_session_hints
from kvext.simulation.trace import Trace
from kvext.tenancy.policy import Access, Session


def _trace(*prompts: Sequence[int], sessions: Sequence[int] | None = None) -> Trace:
    accesses = [Access(at, keys, 512 * len(keys)) for at, keys in enumerate(prompts)]
    return Trace("test", 512, len(accesses), accesses, sessions)


def test_prompt_that_repeats_nearly_all_of_an_earlier_one_continues_it() -> None:
    prompts = ([0, 1, 2, 3], [0, 9, 8], [0, 1, 2, 4, 5], [0, 9, 8, 7], [0, 1, 2, 4, 6])
    assert find_sessions(_trace(*prompts).accesses) == [0, 1, 0, 1, 0]


def test_prompt_that_shares_one_block_or_a_small_part_begins_a_conversation() -> None:
    prompts = ([0, 1, 2, 3, 4, 5, 6], [0, 7, 8], [0, 1, 2, 9])
    assert find_sessions(_trace(*prompts).accesses) == [0, 1, 2]
    assert find_sessions(_trace([0, 1], [0, 5, 6]).accesses) == [0, 1]


def test_last_request_of_a_conversation_is_closed_and_the_others_open() -> None:
    trace = with_session_hints(_trace([1, 2], [3, 4], [1, 2, 5], [1, 2, 5, 6]), 1.0)
    hints = [access.session for access in trace.accesses]
    assert hints == [Session.OPEN, Session.CLOSED, Session.OPEN, Session.CLOSED]


def test_named_conversations_are_not_guessed() -> None:
    trace = with_session_hints(_trace([1, 2], [1, 2, 3], sessions=[0, 1]), 1.0)
    assert [access.session for access in trace.accesses] == [Session.CLOSED, Session.CLOSED]


def _chat() -> Trace:
    chat = Chat(sessions_per_second=2, mean_turns=3)
    return generate(chat, duration_s=500, block_tokens=512, seed=0)


def test_guessed_conversations_are_those_of_the_generator() -> None:
    chat = _chat()
    assert find_sessions(chat.accesses) == chat.sessions


@pytest.mark.parametrize("fraction", [0.0, 0.25, 1.0])
def test_share_of_conversations_tells_and_the_rest_stays_unknown(fraction: float) -> None:
    hinted = with_session_hints(_chat(), fraction, seed=3)
    assert hinted.sessions is not None
    telling = {
        session
        for session, access in zip(hinted.sessions, hinted.accesses, strict=True)
        if access.session is not Session.UNKNOWN
    }
    assert len(telling) / len(set(hinted.sessions)) == pytest.approx(fraction, abs=0.05)
    for session, access in zip(hinted.sessions, hinted.accesses, strict=True):
        assert (access.session is not Session.UNKNOWN) == (session in telling)
    closed = sum(access.session is Session.CLOSED for access in hinted.accesses)
    assert closed == len(telling)


def test_seed_chooses_which_conversations_tell() -> None:
    assert with_session_hints(_chat(), 0.5, seed=1) == with_session_hints(_chat(), 0.5, seed=1)
    assert with_session_hints(_chat(), 0.5, seed=1) != with_session_hints(_chat(), 0.5, seed=2)
