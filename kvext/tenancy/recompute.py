"""What a hit is worth: the time that computing its block again would take.

Prefill of one token costs a constant share (the matrix products) and a share that grows with its
position (attention reads all tokens before it). A later block of a prompt is therefore worth
more than an early one.
"""

from dataclasses import dataclass

__all__ = ["RecomputeCost"]


@dataclass(frozen=True, slots=True)
class RecomputeCost:
    """Prefill time as a linear function of the position.

    The defaults are those of a dense model of 8 billion parameters, 32 layers and hidden size
    4096 at 400 TFLOP/s: 2 FLOP a parameter a token, and 4 x layers x hidden FLOP for each token
    of context that it attends to. They are a model, not a measurement.

    Attributes:
        token_s: Seconds for a token without context.
        context_token_s: Seconds more for each token before it.
    """

    token_s: float = 2 * 8.0e9 / 400e12
    context_token_s: float = 4 * 32 * 4096 / 400e12

    def first_block_s(self, block_tokens: int) -> float:
        """Seconds for the first block of a prompt."""
        return block_tokens * (self.token_s + self.context_token_s * (block_tokens - 1) / 2)

    def block_step_s(self, block_tokens: int) -> float:
        """Seconds that each block costs more than the one before it."""
        return self.context_token_s * block_tokens**2

    def prefix_s(self, num_blocks: int, block_tokens: int) -> float:
        """Seconds for the first `num_blocks` of a prompt together."""
        steps = num_blocks * (num_blocks - 1) / 2
        return num_blocks * self.first_block_s(block_tokens) + steps * self.block_step_s(
            block_tokens
        )
