"""`kvext simulate --scenario`: tenants together and alone, as people and scripts see them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kvext.cli import kvext

_CHAT = """
[[tenant]]
name = "chat"
floor_blocks = 100
[tenant.generator]
kind = "chat"
sessions_per_second = 0.5
duration_s = 900
"""
_SCANNER = """
[[tenant]]
name = "scanner"
[tenant.generator]
kind = "unique"
requests_per_second = 1
blocks_per_prompt = 50
duration_s = 900
"""
_LOOP = """
[[tenant]]
name = "loop"
weight = 3
[tenant.generator]
kind = "loop"
requests_per_second = 1
blocks_per_prompt = 5
documents = 20
duration_s = 900
"""
_SCENARIO = f'capacity_blocks = 600\npolicy = "lru"\n{_CHAT}{_SCANNER}{_LOOP}'

Call = Callable[..., Result]


@pytest.fixture
def call(tmp_path: Path) -> Call:
    """Writes a scenario and calls `kvext simulate --scenario` on it."""

    def invoke(text: str, *arguments: str) -> Result:
        file = tmp_path / "tenants.toml"
        file.write_text(text)
        command = ["simulate", "--scenario", str(file), *arguments]
        return CliRunner().invoke(kvext, command, catch_exceptions=False)

    return invoke


def _document(result: Result) -> Any:
    assert result.stderr == ""
    assert result.exit_code == 0
    return json.loads(result.stdout)


def test_each_tenant_is_told_shared_and_alone(call: Call) -> None:
    run = _document(call(_SCENARIO, "--json"))
    assert list(run["tenants"]) == ["chat", "scanner", "loop"]
    assert (run["policy"], run["capacity_blocks"], run["shared_fairly"]) == ("lru", 600, True)
    for tenant in run["tenants"].values():
        assert tenant["entitled_blocks"] == 200
        assert tenant["entitled_share"] == pytest.approx(1 / 3)
        assert 0 <= tenant["hit_ratio"] <= 1
        assert tenant["held_share"] == tenant["held_blocks"] / 600
    held = sum(tenant["held_blocks"] for tenant in run["tenants"].values())
    assert 580 < held <= 600  # reclaim leaves a little room
    hits = sum(tenant["num_hits"] for tenant in run["tenants"].values())
    assert run["total_hit_ratio"] == hits / run["num_block_accesses"]
    assert run["total_hit_ratio"] < run["optimal_total_hit_ratio"] < 1
    assert 0 < run["recompute_seconds_saved"] < run["optimal_recompute_seconds_saved"]
    assert run["accesses_per_second"] > 0


def test_worst_tenant_counts_and_one_that_hits_nothing_alone_does_not(call: Call) -> None:
    run = _document(call(_SCENARIO, "--json"))
    assert run["tenants"]["scanner"]["alone_hit_ratio"] == 0
    assert run["tenants"]["scanner"]["shared_over_alone"] is None
    quotients = [
        tenant["hit_ratio"] / tenant["alone_hit_ratio"]
        for name, tenant in run["tenants"].items()
        if name != "scanner"
    ]
    assert run["min_shared_over_alone"] == pytest.approx(min(quotients))


def test_no_quotient_is_told_if_no_tenant_hits_anything_alone(call: Call) -> None:
    run = _document(call(f"capacity_blocks = 100\n{_SCANNER}", "--json"))
    assert run["min_shared_over_alone"] is None


def test_shares_protect_what_a_scanner_takes_without_them(call: Call) -> None:
    fair = _document(call(_SCENARIO, "--json"))
    unfair = _document(call(_SCENARIO, "--unfair", "--json"))
    assert unfair["shared_fairly"] is False
    assert unfair["min_shared_over_alone"] < 0.5
    assert fair["min_shared_over_alone"] > 0.9
    assert fair["total_hit_ratio"] > unfair["total_hit_ratio"]
    alone = [
        {name: tenant["alone_hit_ratio"] for name, tenant in run["tenants"].items()}
        for run in (fair, unfair)
    ]
    assert alone[0] == alone[1]


def test_entitlement_by_weight_divides_what_is_above_the_floors(call: Call) -> None:
    run = _document(call('entitlement = "weight"\n' + _SCENARIO, "--unfair", "--json"))
    entitled = {name: tenant["entitled_blocks"] for name, tenant in run["tenants"].items()}
    assert entitled == {"chat": 200, "scanner": 100, "loop": 300}


def test_entitlement_by_class_and_by_usage(call: Call) -> None:
    classes = 'entitlement = "class"\nclass_weights = { gold = 3 }\n' + _SCENARIO
    classes = classes.replace('name = "chat"', 'name = "chat"\nclass = "gold"')
    run = _document(call(classes, "--unfair", "--json"))
    assert run["tenants"]["chat"]["entitled_blocks"] == 400
    usage = _document(call('entitlement = "usage"\n' + _SCENARIO, "--unfair", "--json"))
    entitled = {name: tenant["entitled_blocks"] for name, tenant in usage["tenants"].items()}
    assert entitled["scanner"] > 350


def test_policy_size_and_seed_of_the_call_replace_those_of_the_file(call: Call) -> None:
    answer = _document(
        call(_SCENARIO, "--policy", "lru,arc", "--blocks", "300,0.6k", "--seed", "9", "--json")
    )
    runs = [(run["capacity_blocks"], run["policy"], run["seed"]) for run in answer["runs"]]
    assert runs == [(300, "lru", 9), (300, "arc", 9), (600, "lru", 9), (600, "arc", 9)]


def test_same_scenario_gives_the_same_figures(call: Call) -> None:
    first, again = (_document(call(_SCENARIO, "--json")) for _ in range(2))
    assert first.pop("accesses_per_second") != again.pop("accesses_per_second")
    assert first == again


def test_tenant_that_stores_nothing_hits_nothing_and_does_not_count(call: Call) -> None:
    text = _SCENARIO + "[tenant.retention]\nstore = false\n"
    run = _document(call(text, "--json"))
    loop = run["tenants"]["loop"]
    assert (loop["hit_ratio"], loop["alone_hit_ratio"], loop["held_blocks"]) == (0, 0, 0)
    assert loop["blocks_written"] == 0
    assert run["min_shared_over_alone"] == run["tenants"]["chat"]["shared_over_alone"]


def test_table_names_each_tenant_and_what_they_come_to(call: Call) -> None:
    shown = call(_SCENARIO).stdout
    assert all(name in shown for name in ("chat", "scanner", "loop", "worst ratio", "optimum"))
    assert "one cache without shares" in call(_SCENARIO, "--unfair").stdout


def test_tenants_of_one_run_are_drawn_as_bars_and_several_sizes_as_curves(call: Call) -> None:
    bars = call(_SCENARIO, "--plot", "-").stdout
    assert "chat alone" in bars
    curves = call(_SCENARIO, "--plot", "-", "--blocks", "200,400,600").stdout
    assert "hits by blocks" in curves


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (
            _SCENARIO.replace("floor_blocks = 100", "floor_blocks = 601"),
            6,
            "its floor of 601 exceeds the capacity of 600",
        ),
        (
            _SCENARIO.replace("weight = 3", "floor_blocks = 501"),
            22,
            "floors of 601 together exceed the capacity of 600",
        ),
        (
            _SCENARIO.replace("floor_blocks = 100", "floor_blocks = 100\nceiling_blocks = 99"),
            6,
            "its floor of 100 exceeds its ceiling of 99",
        ),
        (
            'entitlement = "class"\n' + _SCENARIO.replace("weight = 3", 'class = "gold"'),
            23,
            "there is no class 'gold'",
        ),
        (_SCENARIO.replace("600", "600_000", 1), 1, "capacity of 600000 blocks is larger"),
    ],
)
def test_contradictory_shares_are_refused_by_their_line(
    call: Call, text: str, line: int, message: str
) -> None:
    result = call(text, "--json")
    assert result.exit_code == 1
    error = json.loads(result.stdout)
    assert (error["error"], error["line"]) == ("ScenarioError", line)
    assert message in error["message"]


def test_capacity_of_the_call_is_held_against_the_shares(call: Call) -> None:
    result = call(_SCENARIO, "--blocks", "99")
    assert result.exit_code == 1
    assert "line 6: " in result.stderr
    assert "its floor of 100 exceeds the capacity of 99" in result.stderr
    assert call(_SCENARIO, "--blocks", "5M").exit_code == 1


@pytest.mark.parametrize(
    "option", [("--block-tokens", "16"), ("--session-hints", "0.5"), ("--seeds", "3")]
)
def test_option_that_the_scenario_says_itself_is_a_wrong_call(
    call: Call, option: tuple[str, str]
) -> None:
    result = call(_SCENARIO, *option)
    assert result.exit_code == 2
    assert "a scenario says them itself" in result.stderr
