"""Whatever is wrong with the pool, the engine serves right answers and says once what to mend."""

import logging
import os
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvext.cxl import create_region
from kvext.pool import Pool
from tests.engine.engines import Engines, prompt
from tests.engine.pools import attached, damage, pool_file


def warnings_of_kvext(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.name.startswith("kvext") and record.levelno >= logging.WARNING
    ]


@pytest.mark.parametrize("load", ["sync", "async"])
@pytest.mark.parametrize("block", [0, 5])
def test_corrupted_block_is_quarantined_and_recomputed(
    engines: Engines, model: Path, pool_options: dict[str, Any], load: str, block: int
) -> None:
    engine = engines.get(model, {**pool_options, "load": load, "pool_name": f"corrupt-{load}"})
    options = {**pool_options, "pool_name": f"corrupt-{load}"}
    tokens = prompt(200 + block, 300)
    cold = engine.ask(tokens)
    damage(options, tokens, block)
    engine.forget_local()
    hurt = engine.ask(tokens)
    assert hurt.same_as(cold)
    assert hurt.kvext["failed_loads"] == {"corrupt": 1}
    assert hurt.kvext["pool_tokens"] == block * 32, "only what precedes the bad block counts"
    with attached(options) as pool:
        assert pool.stat().counters["corrupt_loads"] >= 1
        assert pool.stat().num_pinned == 0
    engine.forget_local()
    engine.ask(tokens)
    engine.forget_local()
    healed = engine.ask(tokens)
    assert "failed_loads" not in healed.kvext
    assert healed.kvext["pool_tokens"] == 288
    assert healed.same_as(cold)


def test_nothing_computed_on_a_corrupted_block_is_stored(
    engines: Engines, model: Path, pool_options: dict[str, Any]
) -> None:
    options = {**pool_options, "pool_name": "poison"}
    engine = engines.get(model, options)
    shared = prompt(210, 160)
    first, second = shared + prompt(211, 200), shared + prompt(212, 200)
    clean = [engine.ask(first), engine.ask(second)]
    with attached(options) as pool:
        pool.clear()
    engine.forget_local()
    engine.ask(shared + prompt(213, 5))
    damage(options, shared, 2)
    engine.forget_local()
    hurt = engine.ask_all([first, second])
    for answer, expected in zip(hurt, clean, strict=True):
        assert answer.same_as(expected)
    engine.forget_local()
    later = [engine.ask(first), engine.ask(second)]
    assert any(answer.kvext["pool_tokens"] for answer in later)
    for answer, expected in zip(later, clean, strict=True):
        assert answer.same_as(expected)


def make_region(options: dict[str, Any]) -> Path:
    path = pool_file(options)
    path.parent.mkdir(exist_ok=True)
    create_region(path, 4 << 20, Pool.initialise)
    return path


def other_version(options: dict[str, Any]) -> None:
    with make_region(options).open("r+b") as file:
        file.seek(8)
        file.write(struct.pack("<I", 99))


def truncated(options: dict[str, Any]) -> None:
    os.truncate(make_region(options), 1 << 20)


def no_folder(options: dict[str, Any]) -> None:
    options["pool_folder"] += "/none"


def too_large(options: dict[str, Any]) -> None:
    options["pool_size"] = "4000TiB"


def too_small(options: dict[str, Any]) -> None:
    options["pool_size"] = "1MiB"
    options["pool_name"] = "small"


def extents_in_use_too_small(options: dict[str, Any]) -> None:
    pool = Pool.attach(make_region(options), extent_bytes=4096, label="holder")
    holders.append(pool)


holders: list[Pool] = []


@pytest.fixture(autouse=True)
def released_holders() -> Iterator[None]:
    yield
    while holders:
        holders.pop().close()


@pytest.mark.parametrize(
    ("spoil", "remedy"),
    [
        (other_version, "another pool name"),
        (truncated, "truncated"),
        (no_folder, "make the folder"),
        (too_large, "ask for less"),
        (extents_in_use_too_small, "another pool name"),
    ],
)
def test_unusable_pool_gives_one_clear_warning_and_an_engine_that_serves(
    engines: Engines,
    model: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    spoil: Any,
    remedy: str,
) -> None:
    options = {"pool_folder": str(tmp_path), "pool_size": "4MiB"}
    spoil(options)
    engine = engines.get(model, options, fresh=True)
    answer = engine.ask(prompt(220, 100))
    assert len(answer.tokens) == 8
    (warning,) = warnings_of_kvext(caplog)
    assert remedy in warning
    assert answer.kvext["reason"] in warning


def test_read_only_pool_gives_one_clear_warning_and_an_engine_that_serves(
    engines: Engines, model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a file system")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", tmp_path], check=True)
    try:
        options = {"pool_folder": str(tmp_path), "pool_size": "4MiB"}
        make_region(options)
        subprocess.run(["mount", "-o", "remount,ro", tmp_path], check=True)
        answer = engines.get(model, options, fresh=True).ask(prompt(230, 100))
        engines.close()
    finally:
        subprocess.run(["umount", tmp_path], check=True)
    assert len(answer.tokens) == 8
    (warning,) = warnings_of_kvext(caplog)
    assert "Read-only file system" in warning


def test_full_pool_evicts_and_goes_on(
    engines: Engines, model: Path, pool_options: dict[str, Any]
) -> None:
    options = {**pool_options, "pool_size": "3MiB", "pool_name": "narrow"}
    engine = engines.get(model, options)
    answers = [engine.ask(prompt(240 + index, 300)) for index in range(6)]
    assert all(answer.kvext.get("rejected", {}) == {} for answer in answers)
    with attached(options) as pool:
        stat = pool.stat()
        assert stat.counters["evictions"] > 0
        assert stat.num_pinned == 0


def test_unknown_option_stops_the_start_and_names_the_nearest(
    engines: Engines, model: Path, pool_options: dict[str, Any]
) -> None:
    with pytest.raises(Exception, match="did you mean 'pool_size'"):
        engines.get(model, {**pool_options, "pool_sise": "1GiB"}, fresh=True)


def test_model_that_cannot_be_cached_is_served_uncached_with_one_warning(
    engines: Engines,
    tmp_path: Path,
    pool_options: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    from kvext.testing.attention_models import tiny_deepseek  # noqa: PLC0415

    model = tiny_deepseek(tmp_path / "latent")
    engine = engines.get(model, pool_options, attention_backend="CPU_MLA")
    answer = engine.ask(prompt(250, 100))
    assert len(answer.tokens) == 8
    (warning,) = warnings_of_kvext(caplog)
    assert "CPU_MLA cannot go on from KV" in warning
    assert warning.endswith(answer.kvext["reason"])
