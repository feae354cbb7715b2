"""What a toy engine is made of, and what its blocks must hold."""

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from typing import Any

from typing_extensions import override

from kvext.connector.shadow import Verdict
from kvext.connector.shadow_checks import Comparison
from kvext.protocol.key import KEY_BYTES, Namespace, TokenChain, block_keys, extend_chain
from kvext.protocol.layout import KVLayout, RecordShape
from kvext.testing.tier import FakePages, FakeTier

BLOCK_TOKENS = 16
PIECE_BYTES = 32
"""Of a block over all layers."""
LAYERS = {"first": 0, "last": 1}
SHAPE = RecordShape(BLOCK_TOKENS)
LAYOUT = KVLayout("float32", 1, 1, 8, "toy")
MODEL = b"m" * 32


class ManualClock:
    """Time that tests move."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class ManualExecutor(Executor):
    """Runs its work when a test says so, so that random lives can be replayed."""

    def __init__(self) -> None:
        self._work: list[tuple[Future[Any], Callable[[], Any]]] = []

    @override
    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._work.append((future, lambda: fn(*args, **kwargs)))
        return future

    def run_all(self) -> None:
        work, self._work = self._work, []
        for future, action in work:
            future.set_result(action())


class ToyVerifier:
    """Compares copies of an engine's blocks with what a tier holds by then."""

    def __init__(self, tier: FakeTier, pages: FakePages) -> None:
        self._tier = tier
        self._pages = pages

    def begin(self, keys: bytes, block_ids: Sequence[int]) -> Callable[[], Comparison] | None:
        names = [keys[at : at + KEY_BYTES] for at in range(0, len(keys), KEY_BYTES)]
        known = self._tier.records()
        copies = {
            name: self._pages.read(block_id)
            for name, block_id in zip(names, block_ids, strict=True)
            if name in known
        }
        return (lambda: self._compare(copies)) if copies else None

    def _compare(self, copies: dict[bytes, bytes]) -> Comparison:
        records = self._tier.records()
        return Comparison([_verdict(records.get(name), copies[name]) for name in copies])


def _verdict(record: bytes | None, copy: bytes) -> Verdict:
    if record is None:
        return Verdict.GONE
    return Verdict.IDENTICAL if record == copy else Verdict.FAILED


def expected_records(tokens: Sequence[int]) -> dict[bytes, bytes]:
    """What every full block of a sequence must hold, by key."""
    stop = len(tokens) // BLOCK_TOKENS * BLOCK_TOKENS
    chain = TokenChain(extend_chain)
    chain.advance(tokens, stop)
    keys = block_keys(Namespace(MODEL, LAYOUT, None, "").digest(), chain.links(0, stop), 1)
    records: dict[bytes, bytes] = {}
    for index in range(stop // BLOCK_TOKENS):
        new = tokens[index * BLOCK_TOKENS : (index + 1) * BLOCK_TOKENS]
        key = keys[index * KEY_BYTES : (index + 1) * KEY_BYTES]
        records[key] = block_bytes(b"".join(records.values()), new)
    return records


def block_bytes(previous: bytes, tokens: Sequence[int]) -> bytes:
    return hashlib.sha256(previous + repr(list(tokens)).encode()).digest()


def extend_keys(
    parent: bytes, namespace: bytes, tokens: Sequence[int], links_per_block: int
) -> bytes:
    """`kvext.pool.extend_keys` by the definitions."""
    links = extend_chain(parent, tokens, 0, len(tokens))
    return block_keys(namespace, links, links_per_block) + (links or parent)[-KEY_BYTES:]
