"""Which requests may have something to offer in a step, without looking at each of them.

Most steps of most requests decode one token more, and an engine may have hundreds of requests. So
a request that lacks n tokens of a full block is put off for n steps; if one that was put off
computes several tokens in a step, all that do are looked at. Invariant: whoever is called is chosen
by every step that schedules it until it is put off or dismissed, so a failed look is repeated.
"""

from collections.abc import Mapping

__all__ = ["Agenda"]


class Agenda:
    """Requests by the step in which they are looked at next."""

    __slots__ = ("_called", "_later", "_step", "_step_of")

    def __init__(self) -> None:
        """Begin with nobody to look at."""
        self._step = 0
        self._called: dict[str, None] = {}  # a set that keeps its order
        self._later: dict[int, list[str]] = {}
        self._step_of: dict[str, int] = {}

    def call(self, request_id: str) -> None:
        """Have a request looked at in its next step, and in all after it until it is put off."""
        self._called[request_id] = None

    def put_off(self, request_id: str, num_steps: int) -> None:
        """Do not look at a request for some steps, unless one computes several of its tokens.

        Args:
            request_id: A request that was chosen for this step.
            num_steps: At least 1; this replaces what was said of it before.
        """
        self._called.pop(request_id, None)
        step = self._step_of[request_id] = self._step + num_steps
        later = self._later.get(step)
        if later is None:
            self._later[step] = [request_id]
        else:
            later.append(request_id)

    def keep_off(self, request_id: str, num_steps: int) -> None:
        """Put a request off, though not beyond the step that it has if it was not called.

        Several tokens may be followed by single ones, which have nobody looked at: a step that
        was chosen before them is too late. Who was dismissed stays so.
        """
        step = self._step + num_steps
        if request_id in self._called or step < self._step_of.get(request_id, 0):
            self.put_off(request_id, num_steps)

    def dismiss(self, request_id: str) -> None:
        """Do not look at a request again, unless it is called or computes several tokens."""
        self._called.pop(request_id, None)
        self._step_of.pop(request_id, None)

    def choose(self, num_scheduled: Mapping[str, int]) -> list[str]:
        """Begin the next step.

        Args:
            num_scheduled: By request, the tokens that the step computes; at least one each.

        Returns:
            Those of them that are worth a look, each once.
        """
        step = self._step = self._step + 1
        called = self._called
        for request_id in self._later.pop(step, ()):
            if self._step_of.get(request_id) == step:  # else it was put off anew, or is gone
                called[request_id] = None
        chosen = [name for name in called if name in num_scheduled]
        num_surplus = sum(num_scheduled.values()) - len(num_scheduled)
        if sum(num_scheduled[name] for name in chosen) - len(chosen) != num_surplus:
            return [name for name, count in num_scheduled.items() if count > 1 or name in called]
        return chosen
