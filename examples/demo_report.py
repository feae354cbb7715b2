"""What the demo found, as a table for people and as JSON for programs."""

from dataclasses import asdict, dataclass

from demo_stage import Turn
from rich.console import Console
from rich.table import Table

from kvext.config import format_bytes
from kvext.pool import NamespaceUse, PoolStat

__all__ = ["Casualty", "DemoResult", "Occupancy", "Scenes", "show"]


@dataclass(frozen=True, slots=True)
class Casualty:
    """What the pool held of the killed engine's last request at the moment of its death."""

    num_stored: int
    num_half_written: int


@dataclass(frozen=True, slots=True)
class Scenes:
    """All that was asked, in order."""

    cold: Turn
    local_hit: Turn
    casualty: Casualty
    warm: Turn
    neighbour_cold: Turn
    neighbour_warm: Turn


@dataclass(frozen=True, slots=True)
class Occupancy:
    """The pool at the end."""

    num_blocks: int
    num_extents: int
    held_bytes: int
    capacity_bytes: int
    num_reclaimed: int
    labels: tuple[str, ...]

    @classmethod
    def of(cls, stat: PoolStat, uses: list[NamespaceUse]) -> "Occupancy":
        """Pick what the demo shows."""
        return cls(
            stat.num_committed,
            stat.num_extents,
            stat.committed_bytes,
            stat.capacity_bytes,
            stat.counters["reaped_reservations"],
            tuple(use.label for use in uses),
        )


@dataclass(frozen=True, slots=True)
class DemoResult:
    """The figures of `demo-result.json`.

    Attributes:
        tokens_reused: Prompt tokens that the engine after the crash took from the pool, as its
            own `vllm:external_prefix_cache_hits` counts.
        bytes_loaded: Bytes that its worker copied for them.
        load_ms: How long the worker took for that.
        outputs_identical: Whether all answers to one question are the same tokens.
        ttft_cold_ms: Time to first token, everything computed.
        ttft_local_hit_ms: The same question again, from the engine's own prefix cache.
        ttft_warm_ms: The same question to the engine after the crash, from the pool.
        second_engine_tokens_reused: As `tokens_reused`, for the second of two living engines.
        second_engine_bytes_loaded: As `bytes_loaded`, for it.
        second_engine_ttft_cold_ms: What its question took the first of the two.
        second_engine_ttft_warm_ms: What it took itself.
        prompt_tokens: Length of the first question.
        answer: To the first question.
        crash: Of the engine that was killed in the middle of a store.
        pool: At the end.
    """

    tokens_reused: int
    bytes_loaded: int
    load_ms: float
    outputs_identical: bool
    ttft_cold_ms: float
    ttft_local_hit_ms: float
    ttft_warm_ms: float
    second_engine_tokens_reused: int
    second_engine_bytes_loaded: int
    second_engine_ttft_cold_ms: float
    second_engine_ttft_warm_ms: float
    prompt_tokens: int
    answer: str
    crash: Casualty
    pool: Occupancy

    @classmethod
    def of(cls, scenes: Scenes, pool: Occupancy) -> "DemoResult":
        """Compare the turns."""
        first = [scenes.cold, scenes.local_hit, scenes.warm]
        second = [scenes.neighbour_cold, scenes.neighbour_warm]
        return cls(
            tokens_reused=scenes.warm.counted.external_hits,
            bytes_loaded=scenes.warm.counted.loaded_bytes,
            load_ms=round(scenes.warm.counted.load_s * 1e3, 1),
            outputs_identical=_same_answers(first) and _same_answers(second),
            ttft_cold_ms=_ms(scenes.cold),
            ttft_local_hit_ms=_ms(scenes.local_hit),
            ttft_warm_ms=_ms(scenes.warm),
            second_engine_tokens_reused=scenes.neighbour_warm.counted.external_hits,
            second_engine_bytes_loaded=scenes.neighbour_warm.counted.loaded_bytes,
            second_engine_ttft_cold_ms=_ms(scenes.neighbour_cold),
            second_engine_ttft_warm_ms=_ms(scenes.neighbour_warm),
            prompt_tokens=scenes.cold.answer.prompt_tokens,
            answer=scenes.cold.answer.text,
            crash=scenes.casualty,
            pool=pool,
        )

    @property
    def failure(self) -> str:
        """Why the demo did not show what it should; empty if it did."""
        if not (self.tokens_reused and self.bytes_loaded):
            return "the engine after the crash took nothing from the pool"
        if not (self.second_engine_tokens_reused and self.second_engine_bytes_loaded):
            return "the second of two engines took nothing from the pool"
        if not self.outputs_identical:
            return "the answers differ"
        return ""

    def as_dict(self) -> dict[str, object]:
        """JSON-ready."""
        return asdict(self)


def show(scenes: Scenes, result: DemoResult, console: Console) -> None:
    """Print the table and the pool's occupancy."""
    table = Table(title=f"A question of {result.prompt_tokens:,} tokens, then another")
    for column in ("asked", "engine"):
        table.add_column(column, no_wrap=True)
    for column in ("first\ntoken", "tokens\nreused", "bytes\ncopied"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("answer")
    _add(table, "cold", scenes.cold)
    _add(table, "again: engine's own cache", scenes.local_hit, scenes.cold)
    _add(table, "after SIGKILL: pool", scenes.warm, scenes.cold)
    table.add_section()
    _add(table, "another, cold", scenes.neighbour_cold)
    _add(table, "both alive: pool", scenes.neighbour_warm, scenes.neighbour_cold)
    console.print(table)
    pool, crash = result.pool, result.crash
    console.print(
        f"Answer: {result.answer}",
        f"First token {result.ttft_cold_ms / result.ttft_warm_ms:.0f} times sooner than cold, "
        "in an engine that never saw the question.",
        f"The killed engine left {crash.num_stored} whole blocks of its last request and "
        f"{crash.num_half_written} half-written ones; {pool.num_reclaimed} were reclaimed.",
        f"Pool: {pool.num_blocks} of {pool.num_extents} blocks, {format_bytes(pool.held_bytes)} "
        f"of {format_bytes(pool.capacity_bytes)}, all of {', '.join(pool.labels)}.",
        sep="\n",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


def _add(table: Table, asked: str, turn: Turn, reference: Turn | None = None) -> None:
    counted = turn.counted
    reused = counted.local_hits + counted.external_hits
    copied = counted.loaded_bytes
    table.add_row(
        asked,
        turn.engine,
        f"{_ms(turn):,.0f} ms",
        f"{reused:,}" if reused else "-",
        format_bytes(copied) if copied else "-",
        "" if reference is None else "same" if _same_answers([turn, reference]) else "DIFFERS",
    )


def _ms(turn: Turn) -> float:
    return round(turn.answer.ttft_s * 1e3, 1)


def _same_answers(turns: list[Turn]) -> bool:
    return len({turn.answer.token_ids for turn in turns}) == 1
