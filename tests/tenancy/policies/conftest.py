"""Every policy in both of its forms."""

from typing import Protocol

import pytest

from kvext.tenancy.policies import POLICY_NAMES, make_policy
from kvext.tenancy.policies.oracles import make_oracle
from kvext.tenancy.policy import EvictionPolicy


class Form(Protocol):
    def __call__(
        self, name: str, capacity: int, *, seed: int = 0, by_seconds: bool = False
    ) -> EvictionPolicy: ...


class Make(Protocol):
    def __call__(
        self, capacity: int, *, seed: int = 0, by_seconds: bool = False
    ) -> EvictionPolicy: ...


@pytest.fixture(params=[make_policy, make_oracle], ids=["native", "oracle"])
def form(request: pytest.FixtureRequest) -> Form:
    chosen: Form = request.param
    return chosen


@pytest.fixture(params=POLICY_NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def make(form: Form, name: str) -> Make:
    def of_this_name(capacity: int, *, seed: int = 0, by_seconds: bool = False) -> EvictionPolicy:
        return form(name, capacity, seed=seed, by_seconds=by_seconds)

    return of_this_name
