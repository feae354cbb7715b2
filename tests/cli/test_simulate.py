"""`kvext simulate --trace`: what people and scripts see, and what is refused."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kvext.cli import kvext
from kvext.simulation.generators import Chat, generate
from kvext.tenancy.policies import DEFAULT_POLICY, POLICY_NAMES

Call = Callable[..., Result]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Conversations with more blocks than the caches of these tests."""
    chat = Chat(sessions_per_second=1, mean_turns=5, first_blocks=3)
    made = generate(chat, duration_s=400, block_tokens=512, seed=0)
    lines = [
        {
            "timestamp": access.now_ms,
            "input_length": access.input_tokens,
            "output_length": access.output_tokens,
            "hash_ids": list(access.keys),
        }
        for access in made.accesses
    ]
    file = tmp_path_factory.mktemp("traces") / "chat.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))
    return file


@pytest.fixture
def call(trace: Path) -> Call:
    """Calls `kvext simulate --trace` on the conversations."""

    def invoke(*arguments: str) -> Result:
        command = ["simulate", "--trace", str(trace), *arguments]
        return CliRunner().invoke(kvext, command, catch_exceptions=False)

    return invoke


def _document(result: Result) -> Any:
    assert result.stderr == ""
    assert result.exit_code == 0
    return json.loads(result.stdout)


def test_one_run_is_one_flat_object(call: Call, trace: Path) -> None:
    run = _document(call("--blocks", "200", "--policy", "lru", "--seed", "3", "--json"))
    assert (run["trace"], run["policy"]) == (str(trace), "lru")
    assert (run["capacity_blocks"], run["seed"]) == (200, 3)
    assert 0 < run["hit_ratio"] < run["optimal_hit_ratio"] < 1
    assert run["hit_ratio"] == run["num_hits"] / run["num_block_accesses"]
    assert 0 < run["recompute_seconds_saved"] < run["optimal_recompute_seconds_saved"]
    assert run["accesses_per_second"] > 0
    assert run["blocks_written_per_hit"] == run["blocks_written"] / run["num_hits"]


def test_policy_that_is_not_named_is_the_default(call: Call) -> None:
    assert _document(call("--blocks", "200", "--json"))["policy"] == DEFAULT_POLICY


def test_sizes_and_policies_repeated_or_between_commas_make_one_run_each(call: Call) -> None:
    answer = _document(
        call("--blocks", "0.1k,200", "--blocks", "100", "--policy", "lru, arc", "--json")
    )
    runs = [(run["capacity_blocks"], run["policy"]) for run in answer["runs"]]
    assert runs == [(100, "lru"), (100, "arc"), (200, "lru"), (200, "arc")]


def test_size_with_a_fraction_of_a_thousand_is_exact(call: Call) -> None:
    # As floats, 1.001 times 1000 is 1000.9999999999999.
    run = _document(call("--blocks", "1.001k", "--policy", "lru", "--json"))
    assert run["capacity_blocks"] == 1001


def test_all_policies_are_replayed_and_none_passes_the_optimum(call: Call) -> None:
    runs = _document(call("--blocks", "150", "--policy", "all", "--json"))["runs"]
    assert [run["policy"] for run in runs] == list(POLICY_NAMES)
    assert all(run["hit_ratio"] <= run["optimal_hit_ratio"] for run in runs)


def test_several_seeds_give_means_of_the_policies_that_draw(call: Call) -> None:
    lots, fixed = _document(
        call("--blocks", "150", "--policy", "hazard-logit,lru", "--seeds", "3", "--json")
    )["runs"]
    assert lots["seeds"] == [0, 1, 2]
    assert lots["hit_ratio"] == pytest.approx(sum(lots["hit_ratios"]) / 3)
    assert fixed["seed"] == 0
    assert "hit_ratios" not in fixed


def test_same_seed_gives_the_same_hits(call: Call) -> None:
    arguments = ("--blocks", "150", "--policy", "hazard-logit", "--seed", "5", "--json")
    first, again = _document(call(*arguments)), _document(call(*arguments))
    assert first["num_hits"] == again["num_hits"]


def test_optimum_can_be_left_out(call: Call) -> None:
    run = _document(call("--blocks", "150", "--no-optimum", "--json"))
    assert run["optimal_hit_ratio"] is None


def test_hints_that_sessions_are_over_help_the_policy_that_hears_them(call: Call) -> None:
    arguments = ("--blocks", "150", "--policy", "hazard-logit", "--json")
    told = _document(call(*arguments, "--session-hints", "1"))
    untold = _document(call(*arguments))
    assert told["num_hits"] > untold["num_hits"]


def test_table_names_each_size_policy_and_the_optimum(call: Call) -> None:
    shown = call("--blocks", "100,200", "--policy", "lru").stdout
    assert "chat.jsonl" in shown
    assert shown.count("lru") == 2
    assert shown.count("optimum") == 2
    assert "%" in shown


def test_curves_are_drawn_in_the_terminal(call: Call) -> None:
    shown = call("--blocks", "100,200,400", "--policy", "lru,arc", "--plot", "-").stdout
    assert "hits by blocks" in shown
    assert "● lru  ▲ arc  ■ optimum" in shown


def test_one_size_is_drawn_as_bars(call: Call) -> None:
    shown = call("--blocks", "200", "--policy", "lru", "--plot", "-").stdout
    assert "hits at 200 blocks" in shown
    assert "█" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--blocks", "0"), "option '--blocks' cannot be '0'"),
        (("--blocks", "-5"), "option '--blocks' cannot be '-5'"),
        (("--blocks", "1.5"), "option '--blocks' cannot be '1.5'"),
        (("--blocks", "many"), 'give a whole number of blocks above 0, such as "2500" or "2.5k"'),
        (("--blocks", "100,"), "option '--blocks' cannot be ''"),
        (("--blocks", "1__0_"), "option '--blocks' cannot be"),
        (("--blocks", "5M"), "capacity of 5000000 blocks is larger than the trace"),
        (("--blocks", "9" * 23), f"capacity of {'9' * 23} blocks is larger than the trace"),
        (("--blocks", "10", "--policy", "all,lru3"), "there is no eviction policy 'lru3'"),
        (("--blocks", "10", "--policy", "lru3"), "there is no eviction policy 'lru3'"),
        (("--blocks", "10", "--block-tokens", "16"), "chat.jsonl, line 1: "),
        (("--blocks", "10", "--plot", "picture.gif"), "option '--plot' cannot be 'picture.gif'"),
        (("--blocks", "10", "--plot", "/nowhere/at/all.png"), "its folder does not exist"),
        (("--blocks", "10", "--block-tokens", "16"), "with --block-tokens, or block_tokens in a"),
    ],
)
def test_impossible_call_is_refused_in_one_line(
    call: Call, arguments: tuple[str, ...], message: str
) -> None:
    result = call(*arguments)
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "--trace needs --blocks"),
        (("--blocks", "10", "--scenario", "x.toml"), "give a --trace or a --scenario"),
        (("--blocks", "10", "--unfair"), "--unfair is about the tenants of a --scenario"),
        (("--blocks", "10", "--session-hints", "nan"), "a share between 0 and 1"),
        (("--blocks", "10", "--session-hints", "1.5"), "not in the range"),
        (("--blocks", "10", "--seed", "-1"), "not in the range"),
        (("--blocks", "10", "--seeds", "0"), "not in the range"),
        (("--blocks", "10", "--block-tokens", "0"), "not in the range"),
        (("--blocks", "10", "--plot", "-", "--json"), "name a file"),
    ],
)
def test_wrong_call_is_told_with_its_usage(
    call: Call, arguments: tuple[str, ...], message: str
) -> None:
    result = call(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_capacity_of_all_distinct_blocks_is_the_largest_that_is_taken(call: Call) -> None:
    refused = json.loads(call("--blocks", "5M", "--json").stdout)
    assert refused["error"] == "CapacityError"
    largest = refused["largest_blocks"]
    whole = _document(call("--blocks", str(largest), "--policy", "lru", "--json"))
    assert whole["hit_ratio"] == whole["optimal_hit_ratio"]
    assert call("--blocks", str(largest + 1)).exit_code == 1


@pytest.mark.parametrize("as_json", [("--json",), ()])
def test_plot_that_names_a_folder_is_refused_before_anything_is_replayed(
    call: Call, tmp_path: Path, as_json: tuple[str, ...]
) -> None:
    folder = tmp_path / "hits.svg"
    folder.mkdir()
    result = call("--blocks", "100", "--plot", str(folder), *as_json)
    assert result.exit_code == 1
    assert "that is a folder; name a file in it" in result.output
    assert result.stdout == "" or json.loads(result.stdout)["error"] == "InvalidOption"


def test_plot_that_cannot_be_written_after_all_leaves_one_json_document(
    call: Call, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    full = tmp_path / "hits.svg"
    full.symlink_to("/dev/full")
    result = call("--blocks", "100", "--plot", str(full), "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["error"] == "InvalidOption"


def test_missing_matplotlib_is_told_before_anything_is_replayed(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As on a host without it: Python finds no such module.
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = call("--blocks", "100", "--plot", str(tmp_path / "hits.svg"))
    assert result.exit_code == 1
    assert "pip install 'kvext[plot]'" in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize("blocks", ["100", "100,200,400"])
@pytest.mark.parametrize(("suffix", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_plot_is_written_by_matplotlib_where_it_is_installed(
    call: Call, tmp_path: Path, blocks: str, suffix: str, magic: bytes
) -> None:
    pytest.importorskip("matplotlib")
    file = tmp_path / f"hits.{suffix}"
    result = call("--blocks", blocks, "--policy", "lru,arc", "--plot", str(file), "--json")
    assert _document(result)["runs"]
    assert file.read_bytes().startswith(magic)


def test_command_of_the_shell_answers_json_and_errors_with_exit_codes(
    trace: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", "from kvext.cli import main; main()", "simulate"]
    good = [*command, "--trace", str(trace), "--blocks", "0.2k", "--json"]
    done = subprocess.run(good, capture_output=True, check=True)
    assert json.loads(done.stdout)["capacity_blocks"] == 200
    assert done.stderr == b""
    broken = tmp_path / "broken.jsonl"
    broken.write_bytes(trace.read_bytes()[:1000])
    bad = [*command, "--trace", str(broken), "--blocks", "0.2k"]
    failed = subprocess.run(bad, capture_output=True, check=False, text=True)
    assert failed.returncode == 1
    number = broken.read_bytes().count(b"\n") + 1
    assert failed.stderr.startswith(f"error: trace {broken}, line {number}: not JSON")
    assert failed.stdout == ""


def test_help_teaches_by_examples(call: Call) -> None:
    shown = call("--help").stdout
    assert "\n    kvext simulate --trace requests.jsonl --blocks 2.5k" in shown
    assert "\n    kvext simulate --scenario" in shown
