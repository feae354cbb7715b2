"""Long prompts that a small model answers surely: made-up logs of lighthouses, one a station.

The text is generated here, the same on every run, so it needs no file and no licence. Logs of two
stations differ from their first sentence on and share no block. The question asks for a name that
only the log tells: a right answer shows that the engine attended to the right KV.
"""

import random
from collections.abc import Sequence

__all__ = ["Messages", "log_question", "station_log", "warm_up_question"]

Messages = Sequence[dict[str, str]]

_WEATHER = (
    "Fog lay on the sea until noon.",
    "The wind stood in the north-west all day, with squalls of hail.",
    "A clear, cold morning; the mainland hills were in sight.",
    "Rain without a break, and the gutters ran over.",
    "Calm water, warm air, and seals on the lower steps.",
    "A gale from the south-east; spray reached the gallery.",
)
_WORK = (
    "We cleaned the lens and replaced two cracked panes.",
    "The clockwork ran slow, so we oiled it and weighed the chain anew.",
    "The store room was whitewashed and the paraffin moved to the cellar.",
    "We mended the landing rope and painted the rail of the outer stair.",
    "The fog signal was tested at dawn and sounded for nine hours after it.",
    "The logbook of the last quarter was copied out for the commissioners.",
)
_PEOPLE = (
    "{keeper} rowed to the harbour and came back with flour, letters and a new lamp glass.",
    "{keeper} counted {number} ships before dusk, most of them herring boats.",
    "{keeper} stood the night watch alone and saw the mail steamer pass at {number} past four.",
    "{keeper} found {number} birds below the lantern, and three of them flew on after a rest.",
    "{keeper} taught the boy to read the barometer, which fell by {number} points.",
)
_KEEPERS = ("Ada", "Bartholomew", "Cornelius", "Dorothea", "Edmund", "Frida")
_QUESTION = "Which light burned from dusk until dawn?"


def station_log(station: str, *, days: int) -> str:
    """The log of one lighthouse; a day takes about 60 tokens of SmolLM2's vocabulary.

    Args:
        station: The lighthouse's name, which decides the text.
        days: Its length.
    """
    chance = random.Random(station)  # noqa: S311 - variety, not secrecy
    lines = [f"Log of the {station} lighthouse, written by its keepers for those who come after."]
    for day in range(1, days + 1):
        person = chance.choice(_PEOPLE).format(
            keeper=chance.choice(_KEEPERS), number=chance.randint(2, 29)
        )
        events = f"{chance.choice(_WEATHER)} {chance.choice(_WORK)} {person}"
        lines.append(f"Day {day}. {events} The light of {station} burned from dusk until dawn.")
    return "\n".join(lines)


def log_question(station: str, *, days: int = 50) -> Messages:
    """A chat whose long system message is a station's log and whose question is short."""
    return [
        {"role": "system", "content": station_log(station, days=days)},
        {"role": "user", "content": _QUESTION},
    ]


def warm_up_question() -> Messages:
    """A short chat that shares nothing with the logs."""
    return [{"role": "user", "content": "Say hello."}]
