"""Time that passes when a test says so."""

__all__ = ["FakeClock"]


class FakeClock:
    """Monotonic seconds."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now_s += seconds
