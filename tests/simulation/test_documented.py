"""The page about the simulator names the keys that there are, and its scenario can be loaded."""

import json
import re
from pathlib import Path

import msgspec
import pytest

from kvext.simulation.generators import Chat, Loop, Unique, Zipf
from kvext.simulation.scenario import load_scenario
from kvext.simulation.scenario_schema import RangeTable, RetentionTable, ScenarioTable, TenantTable
from kvext.simulation.shares import check_capacity
from kvext.simulation.trace_line import TraceLine
from tests.docs.pages import DOCS, table

_PAGE = DOCS / "simulate.md"


def _keys(kind: type[msgspec.Struct]) -> set[str]:
    return set(kind.__struct_encode_fields__)


def _first_words(heading: str) -> set[str]:
    return {re.sub(r"[\[\]]|tenant\.", "", word) for word in table(_PAGE, heading)}


@pytest.mark.parametrize(
    ("heading", "kind"),
    [
        ("Traces", TraceLine),
        ("Keys of the file", ScenarioTable),
        ("Keys of `[[tenant]]`", TenantTable),
        ("Keys of `[tenant.retention]`", RetentionTable),
    ],
)
def test_every_key_is_in_its_table(heading: str, kind: type[msgspec.Struct]) -> None:
    assert _first_words(heading) == _keys(kind)


@pytest.mark.parametrize("kind", [RangeTable, Unique, Loop, Zipf, Chat])
def test_every_key_of_ranges_and_generators_is_explained(kind: type[msgspec.Struct]) -> None:
    text = _PAGE.read_text(encoding="utf-8")
    assert all(re.search(rf"`[^`]*\b{key}\b", text) for key in _keys(kind))


def _block(fence: str) -> str:
    """The page's only block of this kind."""
    text = _PAGE.read_text(encoding="utf-8")
    (block,) = re.findall(rf"^```{fence}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return str(block)


def test_scenario_of_the_page_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "tenants.toml").write_text(_block(r"\{code-block\} toml"))
    line = _block("json")
    later = json.dumps({**json.loads(line), "timestamp": 3_600_000})
    (tmp_path / "chat.jsonl").write_text(f"{line}{later}\n")
    loaded = load_scenario(tmp_path / "tenants.toml")
    assert [tenant.name for tenant in loaded.tenants] == ["chat", "batch"]
    check_capacity(loaded, loaded.capacity_blocks)
