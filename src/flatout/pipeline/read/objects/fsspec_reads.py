"""Objects of any other store by fsspec, which has a package of its own for each kind."""

import time
from datetime import datetime
from typing import Any

from flatout.errors import BadObject
from flatout.pipeline.read.objects.object_reads import ObjectAnswer, ObjectRequest, not_whole, refused, unreachable

__all__ = ["FsspecReader", "file_system"]

_TRIES, _FIRST_WAIT_S = 5, 0.1
_REST_S = 2.0
_EXACT = ("ETag", "etag", "generation", "version_id", "blob_id", "sha")
_TIMES = ("mtime", "LastModified", "last_modified", "updated")
_SIZES = ("size", "Size", "content-length")


class FsspecReader:
    """File systems of one process."""

    def __init__(self, options: dict[str, Any]) -> None:
        """Take what file systems are made with."""
        self._options = options

    def read(self, request: ObjectRequest) -> ObjectAnswer:
        """Return an object, after some tries where its store fails.

        Raises:
            BadObject: it is missing, may not be read, does not come whole, or is written meanwhile.
        """
        for tried in range(1, _TRIES + 1):
            try:
                return self._once(request)
            except (FileNotFoundError, PermissionError) as error:
                raise refused(request.url, error) from error
            except OSError as error:
                if tried == _TRIES:
                    raise unreachable(request.url, error) from error
                time.sleep(_FIRST_WAIT_S * 2**tried)
        raise AssertionError

    def _once(self, request: ObjectRequest) -> ObjectAnswer:
        system, path = file_system(request.url, self._options)
        before = _facts(system, path)
        identity = _identity(before, request.url)
        if identity and identity == request.known:
            return ObjectAnswer(None, identity)
        try:
            data = bytes(system.cat_file(path, start=request.start, end=request.stop))
        except ValueError as error:  # a range that the store does not take
            raise unreachable(request.url, error, "Check the ranges.") from error
        size = next((before[name] for name in _SIZES if isinstance(before.get(name), int)), None)
        wanted = size if request.start is None else (request.stop or 0) - request.start
        if _identity(_facts(system, path), request.url) != identity:
            raise OSError("it was written while it was read")
        if wanted is not None and len(data) != wanted:
            raise not_whole(request, len(data))
        return ObjectAnswer(data, identity)


def file_system(url: str, options: dict[str, Any]) -> tuple[Any, str]:
    """Return the file system of a URL, and how that calls the object.

    Raises:
        BadObject: a package is missing, or nobody knows such URLs.
    """
    try:
        import fsspec

        found: tuple[Any, str] = fsspec.core.url_to_fs(url, **options)
    except ImportError as error:
        raise BadObject(
            f"{url} needs a package that is missing ({error}).",
            "flatout reads such URLs through fsspec, which has a package of its own for each kind of store.",
            "Install it (pip install s3fs, gcsfs, adlfs, aiohttp ...), or copy the objects to a disk.",
        ) from error
    except (ValueError, TypeError) as error:
        raise BadObject(
            f"{url} cannot be opened ({error}).",
            "fsspec knows no such URL, or no such option.",
            "Check the part before ://, and storage_options=.",
        ) from error
    return found


def _facts(system: Any, path: str) -> dict[str, Any]:
    system.invalidate_cache()
    return dict(system.info(path))


def _identity(facts: dict[str, Any], url: str) -> str:
    """Return what tells this version of an object from later ones; empty where its store does not say that.

    What an archive says of its members does not say which archive it is.
    """
    if "::" in url:
        return ""
    exact = [f"{name}={facts[name]}" for name in _EXACT if facts.get(name) and not str(facts[name]).startswith("W/")]
    if exact:
        return " ".join(exact)
    times = [f"{name}={facts[name]}" for name in _TIMES if facts.get(name) is not None]
    if not times or not all(_has_rested(facts[name.partition("=")[0]]) for name in times):
        return ""
    return " ".join([*times, *(f"{name}={facts[name]}" for name in _SIZES if name in facts)])


def _has_rested(written: Any) -> bool:
    """Return whether an object that is written now would have another time; times may count in seconds."""
    if isinstance(written, datetime):
        written = written.timestamp()
    return isinstance(written, int | float) and time.time() - written >= _REST_S
