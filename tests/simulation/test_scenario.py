"""Scenarios become tenants whose requests are ready to be replayed, or errors with a line."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvext.errors import CapacityError, KvextError, ScenarioError, TraceError
from kvext.simulation.scenario import Scenario, load_scenario, owner_of
from kvext.simulation.shares import check_capacity
from kvext.tenancy.policies import DEFAULT_POLICY
from kvext.tenancy.policy import Session

_SCANNER = """\
[[tenant]]
name = "scanner"
[tenant.generator]
kind = "unique"
requests_per_second = 2
blocks_per_prompt = 5
duration_s = 100
"""
_GOOD = "capacity_blocks = 100\n" + _SCANNER


def _write_trace(folder: Path, name: str, *prompts: tuple[int, list[int]], **more: object) -> None:
    lines = [
        {
            "timestamp": now_ms,
            "input_length": 512 * len(keys),
            "output_length": 1,
            "hash_ids": keys,
            **more,
        }
        for now_ms, keys in prompts
    ]
    (folder / name).write_text("\n".join(map(json.dumps, lines)))


def _load(folder: Path, text: str, seed: int | None = None) -> Scenario:
    file = folder / "scenario.toml"
    file.write_text(text)
    return load_scenario(file, seed=seed)


def test_traces_lie_beside_the_scenario_and_generators_last_as_long(tmp_path: Path) -> None:
    _write_trace(tmp_path, "a.jsonl", (0, [1, 2]), (50_000, [1, 2, 3]))
    scenario = _load(
        tmp_path,
        """
        capacity_blocks = 10
        [[tenant]]
        name = "chat"
        trace = "a.jsonl"
        [[tenant]]
        name = "scanner"
        generator = { kind = "unique", requests_per_second = 2, blocks_per_prompt = 5 }
        """,
    )
    chat, scanner = scenario.tenants
    assert (chat.name, scanner.name) == ("chat", "scanner")
    assert len(chat.trace.accesses) == 2
    assert 40_000 < scanner.trace.accesses[-1].now_ms < 50_000
    assert (scenario.capacity_blocks, scenario.policy) == (10, DEFAULT_POLICY)
    assert scenario.num_blocks == 5 + scanner.trace.num_blocks
    assert scenario.distinct_blocks == 3 + scanner.trace.num_blocks


def test_requests_of_all_tenants_come_in_the_order_of_their_time(tmp_path: Path) -> None:
    _write_trace(tmp_path, "a.jsonl", (0, [1]), (3000, [2]))
    _write_trace(tmp_path, "b.jsonl", (500, [1]), (2500, [2]))
    scenario = _load(
        tmp_path,
        """
        capacity_blocks = 2
        tenant = [
          { name = "a", trace = "a.jsonl" },
          { name = "b", trace = "b.jsonl", start_s = 1 },
        ]
        """,
    )
    assert [(owner, access.now_ms) for owner, access in scenario.arrivals] == [
        (0, 0),
        (1, 1500),
        (0, 3000),
        (1, 3500),
    ]


@pytest.mark.parametrize("largest", [2, 2**44 - 1, 2**44, 2**64 - 1])
def test_same_ids_of_different_tenants_are_different_blocks(tmp_path: Path, largest: int) -> None:
    _write_trace(tmp_path, "a.jsonl", (0, [0, 1, largest]), (1, [0, 1]))
    scenario = _load(
        tmp_path,
        """
        capacity_blocks = 2
        tenant = [{ name = "a", trace = "a.jsonl" }, { name = "b", trace = "a.jsonl" }]
        """,
    )
    first, second = (
        [list(access.keys) for access in tenant.trace.accesses] for tenant in scenario.tenants
    )
    assert not {key for keys in first for key in keys} & {key for keys in second for key in keys}
    assert {owner_of(key) for keys in first for key in keys} == {0}
    assert {owner_of(key) for keys in second for key in keys} == {1}
    assert first[0][:2] == first[1]
    assert len(set(first[0])) == 3


def test_tenants_of_one_trace_are_told_apart(tmp_path: Path) -> None:
    _write_trace(tmp_path, "a.jsonl", (0, [1, 2]), tenant="x")
    text = 'capacity_blocks = 1\n[[tenant]]\nname = "a"\ntrace = "a.jsonl"\ntrace_tenant = '
    assert _load(tmp_path, text + '"x"').num_blocks == 2
    with pytest.raises(ScenarioError, match=r"line 5: .*no line is of tenant 'y'"):
        _load(tmp_path, text + '"y"')


def test_seed_of_the_file_or_the_call_makes_the_requests(tmp_path: Path) -> None:
    first, again = _load(tmp_path, _GOOD), _load(tmp_path, _GOOD)
    assert first.arrivals == again.arrivals
    seeded = _load(tmp_path, "seed = 4\n" + _GOOD)
    assert seeded.arrivals != first.arrivals
    assert seeded.arrivals == _load(tmp_path, _GOOD, seed=4).arrivals


def test_tenants_of_equal_generators_do_not_arrive_together(tmp_path: Path) -> None:
    scenario = _load(tmp_path, _GOOD + _SCANNER.replace("scanner", "other"))
    one, other = (
        [access.now_ms for access in tenant.trace.accesses] for tenant in scenario.tenants
    )
    assert one != other


def test_share_of_the_sessions_says_when_it_is_over(tmp_path: Path) -> None:
    text = """
        capacity_blocks = 9
        [[tenant]]
        name = "chat"
        session_hints = 0.5
        [tenant.generator]
        kind = "chat"
        sessions_per_second = 1
        duration_s = 200
        """
    accesses = _load(tmp_path, text).tenants[0].trace.accesses
    assert {access.session for access in accesses} == set(Session)


def test_capacity_beyond_all_blocks_is_refused_with_the_largest(tmp_path: Path) -> None:
    scenario = _load(tmp_path, _GOOD)
    largest = scenario.distinct_blocks
    check_capacity(scenario, largest)
    with pytest.raises(CapacityError, match=f"give {largest} or less"):
        check_capacity(scenario, largest + 1)
    scenario = _load(tmp_path, "\n\n" + _GOOD.replace("100\n", "100_000\n", 1))
    with pytest.raises(ScenarioError, match="line 3: capacity of 100000 blocks"):
        check_capacity(scenario, 100_000)


_TENANT = '[[tenant]]\nname = "a"\n'
_GENERATOR = 'generator.kind = "unique"\ngenerator.requests_per_second = 2\n'


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 1, "'capacity_blocks' is missing"),
        ("capacity_blocks = 5\n", 1, "'tenant' is missing"),
        ("tenant = []\ncapacity_blocks = 5\n", 1, "'tenant' is empty"),
        ("\ncapacity_blocks = 0\n" + _SCANNER, 2, "'capacity_blocks' is below 1"),
        ("capacity_blocks = -1\n" + _SCANNER, 1, "'capacity_blocks' is below 1"),
        ("capacity_blocks = 1e3\n" + _SCANNER, 1, "is a number where a whole number belongs"),
        ("capacity_blocks = true\n" + _SCANNER, 1, "is true or false where a whole number"),
        ("capacity = 5\n" + _GOOD, 1, "unknown key 'capacity'; did you mean 'capacity_blocks'?"),
        ('policy = "lru3"\n' + _GOOD, 1, "no eviction policy 'lru3'; did you mean 'lru"),
        ("seed = -1\n" + _GOOD, 1, "'seed' is below 0"),
        ("block_tokens = 0\n" + _GOOD, 1, "'block_tokens' is below 1"),
        (_GOOD + _SCANNER, 10, "a second tenant is called 'scanner'"),
        (_GOOD + _TENANT, 9, "tenant 'a' has no requests; give it a trace, or a"),
        (_GOOD + _TENANT + 'trace = "none.jsonl"\n', 11, "trace 'none.jsonl': No such file"),
        (_GOOD + _TENANT + 'trace = "."\n', 11, "trace '.': Is a directory"),
        (_GOOD + _TENANT + 'trace = "a\\u0000b"\n', 11, "zero byte"),
        (_GOOD + _TENANT + 'trace = ""\n', 11, "'trace' is empty"),
        (_GOOD + 'trace = "x"\n', 9, "unknown key 'trace'; use kind, "),
        (_GOOD + _TENANT + 'trace = "x"\n' + _GENERATOR, 12, "is missing"),
        (_GOOD + _TENANT + _GENERATOR, 11, "'blocks_per_prompt' is missing"),
        (_GOOD.replace("[tenant.gen", "trace = 'x'\n[tenant.gen"), 5, "a trace and a generator"),
        (_GOOD.replace("[tenant.gen", "trace_tenant = 'x'\n[tenant.gen"), 4, "there is none"),
        (_GOOD + _TENANT + "trace_tenant = 'x'\n" + _SCANNER, 9, "has no requests"),
        (_GOOD + _TENANT + 'name2 = "b"\n', 11, "unknown key 'name2'; did you mean 'name'?"),
        (_GOOD + "[[tenant]]\nname = ''\n", 10, "'name' is empty"),
        (_GOOD + "[[tenant]]\nfloor_blocks = 1\n", 9, "'name' is missing"),
        (_GOOD + _TENANT + "floor_blocks = -1\n", 11, "'floor_blocks' is below 0"),
        (_GOOD + _TENANT + "ceiling_blocks = 0\n", 11, "'ceiling_blocks' is below 1"),
        (_GOOD + _TENANT + "weight = 0\n", 11, "'weight' is not above 0"),
        (_GOOD + _TENANT + "weight = nan\n", 11, "'weight' is not above 0"),
        (_GOOD + _TENANT + "weight = inf\n", 11, "'weight' is above 1000000000"),
        (_GOOD + _TENANT + "start_s = -inf\n", 11, "'start_s' is below 0"),
        (_GOOD + _TENANT + "start_s = nan\n", 11, "'start_s' is below 0"),
        (_GOOD + _TENANT + "session_hints = 1.5\n", 11, "'session_hints' is above 1"),
        (_GOOD + _TENANT + "generator = 5\n", 11, "is a whole number where an object belongs"),
        (_GOOD + _TENANT + "[tenant.generator]\nrate = 5\n", 11, "'kind' is missing"),
        (
            _GOOD + _TENANT + "[tenant.generator]\nkind = 'uniq'\n",
            12,
            "use one of unique, loop, zipf, chat",
        ),
        (_GOOD + "rate = 5\n", 9, "unknown key 'rate'; "),
        (_GOOD + "arrivals = 'now'\n", 9, "invalid enum value 'now'"),
        (_GOOD + _TENANT + "[tenant.retention]\npriority = 'high'\n", 12, "is a string where"),
        (_GOOD + _TENANT + "[tenant.retention]\nprio = 5\n", 12, "did you mean 'priority'?"),
        (
            _GOOD + "[tenant.retention]\nranges = [\n{ start_token = 5, priority = 1 },\n"
            "{ start_token = 5, end_token = 5, priority = 1 }]\n",
            12,
            "tokens 5 to 5 are no range",
        ),
        ("entitlement = 'best'\n" + _GOOD, 1, "use one of equal, weight, usage, class"),
        ("class_weights = { gold = 0 }\n" + _GOOD, 1, "a value of 'class_weights' is not above 0"),
        ("\nclass_weights = { '' = 1 }\n" + _GOOD, 2, "a key of 'class_weights' is empty"),
        (_GOOD.replace("= 2\n", "= 1e6\n"), 4, "more than 20000000 block accesses"),
        (_GOOD.replace("= 100\n", "= 1e-9\n"), 1, "where a whole number belongs"),
        (_GOOD.replace("duration_s = 100", ""), 4, "no 'duration_s'"),
        (
            _GOOD.replace("duration_s = 100", "duration_s = 1e-9"),
            4,
            "no request arrives in 1e-09 s",
        ),
        ("capacity_blocks 5\n", 1, "not TOML"),
        ("a = 1\n\na = 2\nb = 3\n", 3, "not TOML: Cannot overwrite a value"),
        ("a = 1\n[b\n", 2, "not TOML"),
        ("a = 1\nb = [1,\n", 2, "not TOML"),
        ("a = " + "9" * 5000, 0, "not TOML"),
        ("a = " + "[" * 5000, 0, "nested too deeply"),
        ("a = 1\nb = '\udcff'\n", 2, "not UTF-8"),
    ],
)
def test_wrong_scenario_is_refused_by_its_line(
    tmp_path: Path, text: str, line: int, message: str
) -> None:
    file = tmp_path / "scenario.toml"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ScenarioError) as caught:
        load_scenario(file)
    assert message in str(caught.value)
    assert caught.value.line == line
    assert caught.value.path == str(file)


def test_line_of_a_broken_trace_is_named_with_the_trace(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("\n{}\n")
    with pytest.raises(TraceError, match=r"a\.jsonl, line 2: 'timestamp' is missing"):
        _load(tmp_path, "capacity_blocks = 1\n" + _TENANT + 'trace = "a.jsonl"\n')


def test_generator_that_starts_after_all_traces_needs_a_duration(tmp_path: Path) -> None:
    _write_trace(tmp_path, "a.jsonl", (0, [1]), (1000, [2]))
    text = (
        'capacity_blocks = 1\ntenant = [{ name = "a", trace = "a.jsonl" },\n'
        '{ name = "b", start_s = 1, generator = { kind = "unique",'
        " requests_per_second = 1, blocks_per_prompt = 1 } }]"
    )
    with pytest.raises(ScenarioError, match="line 3: no 'duration_s'"):
        _load(tmp_path, text)


def test_missing_file_and_folder_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none.toml", tmp_path, tmp_path / "a\0b", Path("/dev/zero")):
        with pytest.raises(ScenarioError):
            load_scenario(path)


@settings(deadline=None)  # the machine may be busy
@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode()))
def test_arbitrary_bytes_are_refused_by_an_error_of_kvext(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    file = tmp_path_factory.getbasetemp() / "arbitrary.toml"
    file.write_bytes(content)
    with pytest.raises(KvextError):
        load_scenario(file)


_VALUES = st.sampled_from(
    ["0", "1", "-1", "5", "0.5", "nan", "inf", "true", '"a"', '"lru"', "[]", "{}", "1979-05-27"]
)
_KEYS = st.sampled_from(
    [
        *("name", "trace", "floor_blocks", "ceiling_blocks", "weight", "class", "start_s"),
        *("session_hints", "retention.priority", "retention.ttl_s", "retention.store"),
        *("retention", "generator.kind", "generator.duration_s", "generator", "x", '"a.b"'),
    ]
)


@settings(deadline=None)  # the machine may be busy
@given(st.lists(st.tuples(_KEYS, _VALUES), max_size=3), st.integers(0, 9))
def test_scenario_of_arbitrary_values_is_loaded_or_refused_with_a_line(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[str, str]], at: int
) -> None:
    lines = [
        "[[tenant]]",
        'name = "scanner"',
        'generator.kind = "unique"',
        "generator.requests_per_second = 1",
        "generator.blocks_per_prompt = 1",
        "generator.duration_s = 5",
    ]
    lines[at % 6 + 1 : at % 6 + 2] = [f"{key} = {value}" for key, value in changes]
    file = tmp_path_factory.getbasetemp() / "values.toml"
    file.write_text("capacity_blocks = 1\n" + "\n".join(lines))
    try:
        load_scenario(file)
    except ScenarioError as error:
        assert 1 <= error.line <= len(lines) + 1  # noqa: PT017 - both outcomes are fine
