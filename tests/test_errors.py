"""The error tree: one root, fields that survive pickling, messages that end in a remedy."""

import inspect
import pickle
from dataclasses import fields

import pytest

from kvext import errors
from kvext.errors import KvextError, PoolFull, TokenRangeError

_CONCRETE = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, KvextError) and not kind.__subclasses__()
]
_SAMPLES: dict[object, object] = {
    str: "sample",
    int: 4096,
    float: 0.5,
    object: 0,
    tuple[str, ...]: ("pool_size", "load"),
}


def _sample(kind: type[KvextError]) -> KvextError:
    return kind(*(_SAMPLES[field.type] for field in fields(kind)))


def test_every_error_is_public_and_drawn_in_the_docstring() -> None:
    kinds = {
        name
        for name, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, KvextError)
    }
    assert kinds == set(errors.__all__)
    assert all(name in str(errors.__doc__) for name in kinds)


@pytest.mark.parametrize("kind", _CONCRETE)
def test_message_states_fact_then_remedy_on_one_line(kind: type[KvextError]) -> None:
    fact, _, remedy = str(_sample(kind)).partition("; ")
    assert fact
    assert remedy
    assert "\n" not in remedy


@pytest.mark.parametrize("kind", _CONCRETE)
def test_error_survives_pickling_with_its_fields(kind: type[KvextError]) -> None:
    error = _sample(kind)
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert type(again) is kind
    assert again.as_dict() == error.as_dict()


def test_error_as_data_has_its_name_message_and_fields() -> None:
    error = PoolFull(path="/dev/shm/kvext-a.pool", needed_bytes=2 << 30, free_bytes=1 << 20)  # noqa: S108
    assert error.as_dict() == {
        "error": "PoolFull",
        "message": (
            "pool /dev/shm/kvext-a.pool needs 2.0 GiB but its folder has 1.0 MiB free; "
            "ask for less, or choose another folder"
        ),
        "path": "/dev/shm/kvext-a.pool",  # noqa: S108
        "needed_bytes": 2 << 30,
        "free_bytes": 1 << 20,
    }


def test_token_error_is_a_value_error_too() -> None:
    assert isinstance(TokenRangeError(-1, 0), ValueError)
