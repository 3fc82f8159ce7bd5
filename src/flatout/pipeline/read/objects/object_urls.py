"""Where an object lies, told from its URL, and which library reads it.

obstore is asked for what it names as the URL does: it strips slashes at the ends of keys and takes no empty parts, so
such keys are left to fsspec. So are URLs with a query, and Azure's, which the two libraries read differently.
"""

import os
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

__all__ = ["FSSPEC", "LOCAL", "OBSTORE", "Location", "location_of"]

LOCAL, OBSTORE, FSSPEC = "local", "obstore", "fsspec"

_STORES = {"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs"}
_LARGEST_CONTROL, _DELETE = 0x1F, 0x7F


@dataclass(frozen=True)
class Location:
    """A place that one library reads.

    Attributes:
        reader: the library: one of `LOCAL`, `OBSTORE` and `FSSPEC`.
        root: what a store is made for (`s3://bucket`, `https://host`); empty for the other libraries.
        key: the object in it; the path or URL itself for the other libraries.
    """

    reader: str
    root: str
    key: str


def location_of(url: str) -> Location:
    """Return where the object of a path or URL lies."""
    scheme, mark, rest = url.partition("://")
    scheme = scheme.lower()
    if not mark or scheme in ("file", "local"):
        return Location(LOCAL, "", os.path.abspath(os.path.expanduser(rest if mark else url)))
    if scheme in _STORES:
        bucket, _, key = rest.partition("/")
        if bucket and is_plain_key(key) and "?versionId=" not in key:
            return Location(OBSTORE, f"{_STORES[scheme]}://{bucket}", key)
    elif scheme in ("http", "https"):
        return _of_web(url) or Location(FSSPEC, "", url)
    return Location(FSSPEC, "", url)


def is_plain_key(key: str) -> bool:
    """Return whether obstore asks for this very key."""
    parts = key.split("/")
    signs = any(ord(sign) <= _LARGEST_CONTROL or ord(sign) == _DELETE for sign in key)
    return not signs and all(part not in ("", ".", "..") for part in parts)


def _of_web(url: str) -> Location | None:
    """Return the place of a URL that obstore asks for as it stands; it encodes the decoded path anew."""
    try:
        parts = urlsplit(url)
        key = unquote(parts.path.removeprefix("/"), errors="strict")
        plain = parts.port is None or parts.port > 0
    except ValueError:
        return None
    if not plain or parts.query or parts.fragment or "@" in parts.netloc or "?" in url or "#" in url:
        return None
    if not parts.hostname or not is_plain_key(key) or "%2f" in parts.path.lower():
        return None
    return Location(OBSTORE, f"{parts.scheme}://{parts.netloc}", key)
