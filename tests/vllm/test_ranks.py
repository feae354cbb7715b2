"""What ranks of one vLLM engine tell its scheduler before the first step, taken together."""

from dataclasses import replace
from functools import reduce
from types import SimpleNamespace
from typing import Any

import pytest

from kvext.connector.report import WorkerReport
from kvext.protocol.layout import KVLayout

pytest.importorskip("vllm", reason="needs the engine")

from kvext.vllm.messages import KvextHandshake, KvextReport
from kvext.vllm.requests import uncached_reason

ALIKE = KvextHandshake(KVLayout("float32", 2, 2, 32, "toy/tp2"), 4096)
REFUSED = KvextHandshake(refusal="no pool")
NOTHING = WorkerReport((), (), 0)


def test_ranks_with_alike_shards_serve_together() -> None:
    assert reduce(KvextHandshake.joined, [ALIKE] * 3) == replace(ALIKE, num_ranks=3)


@pytest.mark.parametrize("ranks", [[ALIKE, REFUSED, ALIKE], [REFUSED, ALIKE]])
def test_one_rank_that_does_not_serve_speaks_for_all(ranks: list[KvextHandshake]) -> None:
    assert reduce(KvextHandshake.joined, ranks) == REFUSED


@pytest.mark.parametrize(
    "other",
    [
        replace(ALIKE, record_bytes=8192),
        replace(ALIKE, layout=KVLayout("float32", 2, 1, 32, "toy/tp2")),
    ],
)
def test_ranks_that_hold_other_shards_are_refused(other: KvextHandshake) -> None:
    joined = ALIKE.joined(other)
    assert joined.layout is None
    assert joined.refusal.startswith("ranks whose KV differs in layout")


def test_late_handshakes_of_all_ranks_come_with_their_reports() -> None:
    late = KvextReport(NOTHING, ALIKE).aggregate(KvextReport(NOTHING, ALIKE))
    assert late == KvextReport(NOTHING, replace(ALIKE, num_ranks=2))
    assert late.aggregate(KvextReport(NOTHING)).handshake == late.handshake


def test_requests_for_adapters_are_uncached_with_several_ranks_only() -> None:
    request: Any = SimpleNamespace(
        lora_request=object(),
        mm_features=[],
        prompt_embeds=None,
        prompt_is_token_ids=None,
        resumable=False,
        pooling_params=None,
    )
    assert uncached_reason(request) == ""
    assert uncached_reason(request, num_ranks=2).startswith("unsupported: adapters with tensor")
