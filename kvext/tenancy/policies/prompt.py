"""What all blocks of one prompt have in common, and their features."""

from dataclasses import dataclass

from kvext.tenancy.policies.features import Features, crossed, gap_bucket, log_bucket
from kvext.tenancy.policies.runs import Record
from kvext.tenancy.policy import Access, Session

__all__ = ["UNKNOWN_MS", "Past", "Prompt", "Turn"]

UNKNOWN_MS = -1


@dataclass(frozen=True, slots=True)
class Turn:
    """Where in its conversation a request stands.

    Attributes:
        number: Counts from 1.
        gap_ms: Since the conversation's last request; -1 in its first.
        previous_gap_ms: The gap before that one; -1 if there was none.
    """

    number: int = 1
    gap_ms: int = UNKNOWN_MS
    previous_gap_ms: int = UNKNOWN_MS


@dataclass(frozen=True, slots=True)
class Past:
    """What blocks of one run have in common.

    Attributes:
        record: Of their last access; None if there was none.
        count: Accesses, this one included.
        children_bucket: See `children_bucket`.
        is_tail: The block is partial.
    """

    record: Record | None
    count: int
    children_bucket: int
    is_tail: bool


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt.

    Attributes:
        access: What the policy was told.
        num_blocks: Different blocks of the prompt.
        num_new: Those after the longest known prefix.
        turn: Where in its conversation it stands.
    """

    access: Access
    num_blocks: int
    num_new: int
    turn: Turn

    def features(self, past: Past, position: int, own_gap_ms: int) -> Features:
        """Of a run that begins at `position`; in the order of `Feature`."""
        length = log_bucket(self.num_blocks)
        output = log_bucket(self.access.output_tokens)
        new_blocks = log_bucket(self.num_new)
        session = Session(self.access.session)
        return (
            min(past.count, 5),
            min(self.turn.number, 20),
            length,
            output,
            gap_bucket(self.turn.gap_ms),
            past.children_bucket,
            int(past.is_tail),
            new_blocks,
            gap_bucket(own_gap_ms),
            gap_bucket(self.turn.previous_gap_ms),
            log_bucket(position),
            crossed(past.count, self.turn.number),
            crossed(length, output // 2),
            crossed(new_blocks, length),
            0 if session is Session.UNKNOWN else crossed(session, past.count),
        )
