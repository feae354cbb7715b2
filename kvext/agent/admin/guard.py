"""Who may ask: pure checks of a request's headers.

A page in somebody's browser can reach a port of loopback. It cannot set `Authorization` without
asking first, and what it read by a name that it made point here (DNS rebinding) is refused, since a
`Host` must be an address or "localhost".
"""

import hmac
import ipaddress
from pathlib import Path

from kvext.errors import InvalidOption

__all__ = ["host_is_trusted", "is_admin", "read_token"]

_LEAST_TOKEN = 16
_MOST_TOKEN = 1024
_SCHEME = "Bearer "


def host_is_trusted(header: str | None) -> bool:
    """Whether a `Host` header is an IP address or "localhost", with or without a port."""
    if header is None or len(header) > 100:  # noqa: PLR2004 - longer than any address
        return False
    if header.startswith("["):
        host, bracket, port = header[1:].partition("]")
        if not bracket or (port and not port.startswith(":")):
            return False
        port = port.removeprefix(":")
    else:
        host, _, port = header.partition(":")
    if port and not (port.isascii() and port.isdigit()):
        return False
    if host.lower() == "localhost":
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def read_token(path: Path) -> bytes:
    """The admin's token; the file is read anew for each order, so that it can be changed.

    Raises:
        InvalidOption: The file cannot be read, or what it holds is too short to be a secret.
    """
    try:
        with path.open("rb") as file:
            token = file.read(_MOST_TOKEN + 1).strip()
    except OSError as error:
        raise InvalidOption("--token-file", str(path), f"{error.strerror}") from None
    if not _LEAST_TOKEN <= len(token) <= _MOST_TOKEN:
        remedy = (
            f"put {_LEAST_TOKEN} to {_MOST_TOKEN} bytes into it, such as `openssl rand -hex 32`"
        )
        raise InvalidOption("--token-file", str(path), remedy)
    return token


def is_admin(authorization: str | None, token: bytes) -> bool:
    """Whether the header `Authorization: Bearer TOKEN` has this token, in constant time."""
    if authorization is None or not authorization.startswith(_SCHEME):
        return False
    given = authorization.removeprefix(_SCHEME).strip().encode("utf-8", "surrogateescape")
    return hmac.compare_digest(given, token)
