"""Load what was found, or compute it again? Whatever takes less time, by what was measured.

Both times grow with the tokens, so a part of a hit never pays where the whole does not. Loading
is right unless proven wrong: it wins by far on memory, until both rates were measured several
times, and within a margin. What was measured on a bad moment heals, since a load is tried now and
then; the tries cost at most 1/32 of the computing time that they might spare.
"""

import math
from collections import deque
from collections.abc import Callable
from enum import Enum

from kvext.connector.report import WorkerReport
from kvext.connector.rules import PlanRules

__all__ = ["Choice", "LoadOrRecompute", "Rate", "StepTimer"]

_MIN_SAMPLES = 3
_SMOOTHING = 0.25
_MARGIN = 1.25
"""Once loading is preferred, it must be this much slower to lose; the way back has no margin."""
_PROBE_SHARE = 1 / 32
_MIN_STEP_TOKENS = 128
"""A smaller step measures its fixed cost."""
_MIN_TOKENS_A_REQUEST = 8
"""With fewer tokens a request, a step decodes rather than prefills."""
_MAX_STEPS_IN_FLIGHT = 16


class Choice(Enum):
    """What to do with a hit."""

    LOAD = "load"
    RECOMPUTE = "recompute"
    SHADOW = "shadow"
    """Compute it, to compare the result with what was found; never what is faster."""


class Rate:
    """Seconds a unit, as a moving geometric mean: one hiccup of 100 times moves it by 3 times."""

    __slots__ = ("_log_s", "_num_samples")

    def __init__(self) -> None:
        """Begin unknown."""
        self._log_s = 0.0
        self._num_samples = 0

    @property
    def seconds(self) -> float | None:
        """Seconds a unit; None until it was measured often enough."""
        return math.exp(self._log_s) if self._num_samples >= _MIN_SAMPLES else None

    def observe(self, seconds: float, num_units: int) -> None:
        """Add a measurement; one without time or units says nothing."""
        if seconds <= 0 or num_units <= 0:
            return
        self._num_samples += 1
        weight = max(_SMOOTHING, 1 / self._num_samples)
        self._log_s += weight * (math.log(seconds / num_units) - self._log_s)


class StepTimer:
    """How long the engine takes for a step, seen from where steps are planned and heard of.

    Steps run one after another but may be planned while an earlier one runs, so a step begins when
    it was planned or when the one before it ended, whichever is later. A worker cannot tell: it
    only launches an accelerator's work.
    """

    __slots__ = ("_clock", "_last_end_s", "_last_number", "_planned")

    def __init__(self, clock: Callable[[], float]) -> None:
        """Begin with no steps.

        Args:
            clock: Monotonic time in seconds.
        """
        self._clock = clock
        self._last_end_s = -math.inf
        self._last_number = 0
        self._planned: deque[tuple[int, int, float]] = deque(maxlen=_MAX_STEPS_IN_FLIGHT)

    def plan(self, num_tokens: int) -> int:
        """Note a step that begins to wait for its turn.

        Args:
            num_tokens: What it computes.

        Returns:
            Its number, for its worker to repeat.
        """
        self._last_number += 1
        self._planned.append((self._last_number, num_tokens, self._clock()))
        return self._last_number

    def end(self, number: int) -> tuple[float, int] | None:
        """Hear of the end of a step, or of one that was not planned here (0).

        Args:
            number: What `plan` gave for it.

        Returns:
            Its seconds and its tokens, if they are known.
        """
        begun_s, self._last_end_s = self._last_end_s, self._clock()
        while self._planned and self._planned[0][0] <= number:
            found, num_tokens, planned_s = self._planned.popleft()
            if found == number:
                return self._last_end_s - max(begun_s, planned_s), num_tokens
        return None


class LoadOrRecompute:
    """Measures loads and steps and chooses for each hit; costs about a microsecond a hit."""

    __slots__ = ("_compute", "_credit_s", "_load", "_prefers_loads", "_rules", "_timer")

    def __init__(self, rules: PlanRules, clock: Callable[[], float]) -> None:
        """Begin with nothing measured.

        Args:
            rules: What a block is; `always_load` ends all choice.
            clock: Monotonic time in seconds.
        """
        self._rules = rules
        self._timer = StepTimer(clock)
        self._load = Rate()
        self._compute = Rate()
        self._prefers_loads = True
        self._credit_s = 0.0

    def plan_step(self, num_tokens: int, num_requests: int) -> int:
        """Note a step that is planned.

        Args:
            num_tokens: Tokens that it computes.
            num_requests: Requests that they belong to.

        Returns:
            A number for the worker to repeat, or 0 if the step's time is of no interest.
        """
        is_prefill = num_tokens >= max(_MIN_STEP_TOKENS, _MIN_TOKENS_A_REQUEST * num_requests)
        return self._timer.plan(num_tokens) if is_prefill else 0

    def learn(self, report: WorkerReport) -> None:
        """Take the measurements out of a report, which tells of one step and of loads."""
        for load in report.loads:
            if not load.failures:
                self._load.observe(load.cost_s, load.loaded_bytes)
        step = self._timer.end(report.step)
        if step is not None:
            seconds, num_tokens = step
            ours_s = sum(store.seconds for store in report.stores)
            ours_s += sum(load.stall_s for load in report.loads)
            self._compute.observe(seconds - ours_s, num_tokens)

    def choose(self, num_blocks: int, num_bytes: int | None = None) -> Choice:
        """Decide for a hit.

        Args:
            num_blocks: Blocks that were found.
            num_bytes: What loading them takes, if that is not all of their bytes.

        Returns:
            What is expected to take less time, or now and then the other, to measure it.
        """
        byte_s, token_s = self._load.seconds, self._compute.seconds
        if self._rules.always_load or byte_s is None or token_s is None:
            return Choice.LOAD
        load_s = byte_s * (num_bytes or num_blocks * self._rules.record_bytes)
        compute_s = token_s * num_blocks * self._rules.shape.block_tokens
        self._prefers_loads = load_s <= compute_s * (_MARGIN if self._prefers_loads else 1)
        if self._prefers_loads:
            return Choice.LOAD
        self._credit_s += compute_s * _PROBE_SHARE
        if self._credit_s < load_s:
            return Choice.RECOMPUTE
        self._credit_s = 0.0
        return Choice.LOAD
