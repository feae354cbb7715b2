"""What can be ordered over HTTP: the bodies, checked, and what the agent's loop then does."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Any

import msgspec

from kvext.agent.duties import Duties
from kvext.agent.reaping import reap
from kvext.errors import InvalidOption
from kvext.pool import Pool

__all__ = ["ORDERS", "command_of"]

_Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class _Reap(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing to say."""


class _Reclaim(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`num_records` to evict; none: up to the high watermark, if below the low one."""

    num_records: Annotated[int, msgspec.Meta(ge=1, le=2**30)] | None = None


class _Fence(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One of the two: a model's digest whose blocks end, or the only one whose blocks stay."""

    model: _Digest | None = None
    all_but: _Digest | None = None


class _Bypass(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether the pool is switched off."""

    on: bool


ORDERS: dict[str, type[msgspec.Struct]] = {
    "/reap": _Reap,
    "/reclaim": _Reclaim,
    "/fence": _Fence,
    "/bypass": _Bypass,
}
"""By path, the body that it takes."""


def command_of(path: str, body: bytes, duties: Duties) -> Callable[[Pool], dict[str, Any]]:
    """What the loop shall do.

    Args:
        path: One of `ORDERS`.
        body: JSON, or nothing for an empty object.
        duties: Of the agent.

    Returns:
        The command; it returns the answer.

    Raises:
        InvalidOption: The body is not what the path takes.
    """
    try:
        order = msgspec.json.decode(body or b"{}", type=ORDERS[path])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidOption(f"body of POST {path}", _shown(body), str(error)) from None
    match order:
        case _Reap():
            return lambda pool: asdict(reap(pool, duties.counters))
        case _Reclaim():
            return lambda pool: _reclaim(pool, duties, order.num_records)
        case _Bypass():
            return lambda pool: _bypass(pool, on=order.on)
        case _Fence():
            return _fence(order, body)
    raise AssertionError(path)


def _reclaim(pool: Pool, duties: Duties, num_records: int | None) -> dict[str, Any]:
    if num_records is None:
        num_gone = duties.reclaimer.reclaim(pool)
    else:
        num_gone = duties.reclaimer.make_room(pool, num_records)
    return {"num_reclaimed": num_gone, "num_free": pool.num_free}


def _bypass(pool: Pool, *, on: bool) -> dict[str, Any]:
    pool.set_bypass(on)
    return {"bypassed": on}


def _fence(order: _Fence, body: bytes) -> Callable[[Pool], dict[str, Any]]:
    if (order.model is None) == (order.all_but is None):
        remedy = 'give either "model" or "all_but", a digest of 64 hexadecimal digits'
        raise InvalidOption("body of POST /fence", _shown(body), remedy)
    if order.model is not None:
        model = bytes.fromhex(order.model)
        return lambda pool: asdict(pool.fence(model))
    survivor = bytes.fromhex(order.all_but or "")
    return lambda pool: asdict(pool.fence_all_but(survivor))


def _shown(body: bytes) -> str:
    return body[:80].decode(errors="replace")
