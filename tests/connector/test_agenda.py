"""Who is looked at in a step: nobody too late, hardly anybody for nothing."""

from hypothesis import given, settings
from hypothesis import strategies as st

from kvext.connector.agenda import Agenda


def test_nobody_is_chosen_who_was_not_called() -> None:
    assert Agenda().choose({"a": 1, "b": 1}) == []


def test_called_request_is_chosen_until_it_is_put_off() -> None:
    agenda = Agenda()
    agenda.call("a")
    assert agenda.choose({"b": 1}) == []
    assert agenda.choose({"a": 1, "b": 1}) == ["a"]
    assert agenda.choose({"a": 1, "b": 1}) == ["a"]
    agenda.put_off("a", 2)
    assert agenda.choose({"a": 1, "b": 1}) == []
    assert agenda.choose({"a": 1, "b": 1}) == ["a"]


def test_request_that_is_not_scheduled_in_its_step_is_chosen_in_its_next() -> None:
    agenda = Agenda()
    agenda.put_off("a", 1)
    assert agenda.choose({"b": 1}) == []
    assert agenda.choose({"a": 1}) == ["a"]


def test_request_that_computes_several_tokens_is_chosen_though_it_was_put_off() -> None:
    agenda = Agenda()
    agenda.call("a")
    agenda.put_off("b", 9)
    assert agenda.choose({"a": 5, "b": 3, "c": 1}) == ["a", "b"]


def test_only_the_last_put_off_counts() -> None:
    agenda = Agenda()
    agenda.put_off("a", 1)
    agenda.put_off("a", 2)
    assert agenda.choose({"a": 1}) == []
    assert agenda.choose({"a": 1}) == ["a"]


def test_request_that_has_its_step_keeps_it() -> None:
    agenda = Agenda()
    agenda.put_off("a", 1)
    agenda.keep_off("a", 5)
    assert agenda.choose({"a": 1}) == ["a"]
    agenda.keep_off("a", 1)
    assert agenda.choose({"a": 1}) == ["a"]


def test_several_tokens_bring_the_step_of_a_request_forward() -> None:
    agenda = Agenda()
    agenda.put_off("a", 9)
    assert agenda.choose({"a": 6}) == ["a"]
    agenda.keep_off("a", 2)
    assert agenda.choose({"a": 1}) == []
    assert agenda.choose({"a": 1}) == ["a"]


def test_dismissed_request_is_not_kept_for_later() -> None:
    agenda = Agenda()
    agenda.dismiss("a")
    assert agenda.choose({"a": 2}) == ["a"]
    agenda.keep_off("a", 1)
    assert agenda.choose({"a": 1}) == []


def test_dismissed_request_is_not_chosen_again() -> None:
    agenda = Agenda()
    agenda.call("a")
    agenda.put_off("b", 1)
    agenda.dismiss("a")
    agenda.dismiss("b")
    assert agenda.choose({"a": 1, "b": 1}) == []


@settings(deadline=None)
@given(
    st.lists(
        st.dictionaries(st.sampled_from("abcd"), st.sampled_from([1, 1, 1, 2, 7])), max_size=30
    ),
    st.integers(1, 6),
)
def test_nobody_is_looked_at_too_late(steps: list[dict[str, int]], goal: int) -> None:
    """Each request is looked at in the very step in which it has `goal` more tokens."""
    agenda, lacks = Agenda(), dict.fromkeys("abcd", goal)
    for name in lacks:
        agenda.call(name)
    for num_scheduled in steps:
        chosen = agenda.choose(num_scheduled)
        assert len(chosen) == len(set(chosen))
        for name, count in num_scheduled.items():
            lacks[name] -= count
            assert lacks[name] > 0 or name in chosen
        for name in chosen:
            if lacks[name] <= 0:
                lacks[name] = goal
                agenda.put_off(name, goal)
            else:
                agenda.keep_off(name, lacks[name])
