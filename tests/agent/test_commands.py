"""Orders wait for the loop, but not for ever."""

import threading
from typing import Any

import pytest

from kvext.agent.commands import Commands
from kvext.errors import AgentBusy, InvalidOption
from kvext.pool import Pool


def _serve_until(done: threading.Event, commands: Commands, pool: Pool) -> None:
    while not done.wait(0.01):
        commands.serve(pool)


def _switch_off(pool: Pool) -> dict[str, Any]:
    pool.set_bypass(True)
    return {}


@pytest.fixture
def commands(pool: Pool) -> Any:
    commands, done = Commands(deadline_s=20), threading.Event()
    loop = threading.Thread(target=_serve_until, args=(done, commands, pool))
    loop.start()
    yield commands
    done.set()
    loop.join(20)


def test_the_asker_gets_the_answer(commands: Commands) -> None:
    assert commands.ask(lambda pool: {"free": pool.num_free})["free"] > 0


def test_the_asker_gets_the_error_and_the_loop_goes_on(commands: Commands) -> None:
    def refuse(_: Pool) -> dict[str, Any]:
        raise InvalidOption("x", 1, "do not")

    with pytest.raises(InvalidOption):
        commands.ask(refuse)
    assert commands.ask(lambda _: {"still": "here"}) == {"still": "here"}


def test_what_was_given_up_is_not_done_later(pool: Pool) -> None:
    commands = Commands(deadline_s=0.01)
    with pytest.raises(AgentBusy):
        commands.ask(_switch_off)
    commands.serve(pool)
    assert not pool.bypassed


def test_a_stuck_loop_collects_few_orders(pool: Pool) -> None:
    commands = Commands(deadline_s=0.001)
    for _ in range(40):
        with pytest.raises(AgentBusy):
            commands.ask(lambda _: {})
    commands.serve(pool)
