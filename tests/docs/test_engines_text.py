"""The comparison page's tables say what was measured, and that something was not."""

from typing import Any

import engines_text

SPREAD = {"median": 2.0, "least": 1.0, "greatest": 3.0}


def figures(*systems: str) -> dict[str, Any]:
    found = {
        "cold_ms": SPREAD,
        "local_hit_ms": SPREAD,
        "warm_ms": SPREAD,
        "reused_tokens": 6016,
        "memcpy_gb_s": SPREAD,
        "load_outside_gb_s": None,
    }
    return {"systems": dict.fromkeys(systems, found)}


def test_a_system_that_was_skipped_has_no_row() -> None:
    text = engines_text.TABLES["served"](figures("kvext"))
    assert "LMCache" not in text
    assert "| kvext | 2 (1-3) | 2 (1-3) | 2 (1-3) | 6016 |" in text


def test_what_was_not_measured_is_shown_as_such() -> None:
    text = engines_text.TABLES["bandwidth"](figures("lmcache_lmcache_driven"))
    assert "| LMCache, its server copies | - | - | - | too short to tell | 2.0 (1.0-3.0) |" in text
