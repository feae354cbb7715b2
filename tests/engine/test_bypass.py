"""`kvext pool bypass` under a running engine: uncached with the reason, then cached again."""

from pathlib import Path
from typing import Any

from click.testing import CliRunner

from kvext.cli import kvext
from tests.engine.engines import Engines, prompt
from tests.engine.pools import attached


def bypass(options: dict[str, Any], switch: str) -> None:
    arguments = ["pool", "bypass", switch, "--folder", options["pool_folder"]]
    assert CliRunner().invoke(kvext, arguments).exit_code == 0


def test_running_engine_serves_uncached_while_its_pool_is_bypassed(
    engines: Engines, model: Path, pool_options: dict[str, Any]
) -> None:
    engine, tokens = engines.get(model, pool_options), prompt(260)
    cold = engine.ask(tokens)
    bypass(pool_options, "on")
    try:
        engine.forget_local()
        off = engine.ask(tokens)
        assert (off.cached_tokens, off.kvext["pool_tokens"]) == (0, 0)
        assert off.kvext["reason"] == "bypassed"
        assert engine.ask(prompt(261)).kvext["reason"] == "bypassed"
        with attached(pool_options) as pool:
            assert pool.stat().counters["rejected_bypassed"] >= 2 * 12
    finally:
        bypass(pool_options, "off")
    engine.forget_local()
    on = engine.ask(tokens)
    assert on.kvext["pool_tokens"] == 384
    assert off.same_as(cold)
    assert on.same_as(cold)
    engine.forget_local()
    assert engine.ask(prompt(261)).kvext["pool_tokens"] == 0
