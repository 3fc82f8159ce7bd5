"""Objects of S3, GCS and HTTP by obstore: it signs, keeps connections, repeats what failed, and checks lengths."""

import importlib
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from flatout.errors import BadObject
from flatout.pipeline.read.objects.object_reads import ObjectAnswer, ObjectRequest, not_whole, refused, unreachable
from flatout.pipeline.read.objects.object_urls import location_of
from flatout.pipeline.read.objects.store_options import endpoint_of, named_for, needs_profile

__all__ = ["ObstoreReader"]

_RETRIES, _RETRY_S = 10, 60.0
_IDLE_S = 30.0  # a connection on which nothing comes for so long is given up, and the request repeated
_LONGEST_S = 3600.0  # for one object, however large
_REST_S = 2.0  # times of objects count in seconds: what is younger may be written again in the same one


class ObstoreReader:
    """Stores of one process. obstore's threads do not come along into a forked one."""

    def __init__(self, options: dict[str, Any]) -> None:
        """Take what stores are made with, in the words of s3fs or of obstore; connect to nothing yet."""
        self._options = options
        self._stores: dict[str, Any] = {}
        self._making = threading.Lock()

    def read(self, request: ObjectRequest) -> ObjectAnswer:
        """Return an object.

        Raises:
            BadObject: it is missing, may not be read, or does not come whole.
        """
        obstore, of = _modules()
        place = location_of(request.url)
        options: dict[str, Any] = {}
        if request.start is not None:
            options["range"] = (request.start, request.stop)
        if (etag := _etag_in(request.known)) is not None:
            options["if_none_match"] = etag
        try:
            got = obstore.get(self._store(place.root), place.key, options=options or None)
            data = bytes(got.bytes())
        except of.NotModifiedError:
            return ObjectAnswer(None, request.known)
        except (FileNotFoundError, of.PermissionDeniedError, of.UnauthenticatedError) as error:
            raise refused(request.url, error) from error
        except (of.BaseError, OSError, ValueError) as error:
            raise unreachable(request.url, error) from error
        wanted = got.meta["size"] if request.start is None else (request.stop or 0) - request.start
        if len(data) != wanted:
            raise not_whole(request, len(data))
        identity = _identity(got.meta)
        return ObjectAnswer(None if identity and identity == request.known else data, identity)

    def names(self, root: str, prefix: str) -> list[str]:
        """Return the keys in a store that begin with `prefix`, a folder's, sorted.

        Raises:
            BadObject: they cannot be listed.
        """
        obstore, of = _modules()
        try:
            parts: Iterator[Any] = obstore.list(self._store(root), prefix or None)
            return sorted(meta["path"] for part in parts for meta in part)
        except (of.BaseError, OSError, ValueError) as error:
            raise unreachable(f"{root}/{prefix}", error, "Check that it may be listed, or name the objects.") from error

    def _store(self, root: str) -> Any:
        with self._making:
            if root not in self._stores:
                self._stores[root] = _made(root, self._options)
            return self._stores[root]


def _made(root: str, options: dict[str, Any]) -> Any:
    of, stores = _modules()[1], importlib.import_module("obstore.store")
    scheme = root.partition("://")[0]
    given = named_for(scheme, options)
    over_http = (root if scheme == "http" else endpoint_of(options)).startswith("http://")
    client: dict[str, Any] = {"read_timeout": timedelta(seconds=_IDLE_S), "timeout": timedelta(seconds=_LONGEST_S)}
    client |= {"allow_http": True} if over_http else {}
    client |= given.pop("client_options", None) or {}
    retry: dict[str, Any] = {"max_retries": _RETRIES, "retry_timeout": timedelta(seconds=_RETRY_S)}
    retry |= given.pop("retry_config", None) or {}
    try:
        if scheme in ("http", "https"):
            return stores.HTTPStore.from_url(root, client_options=client, retry_config=retry)
        if scheme == "s3":
            if needs_profile(given):
                given["credential_provider"] = importlib.import_module("obstore.auth.boto3").Boto3CredentialProvider()
            if endpoint := endpoint_of(options):
                given["endpoint"] = endpoint
        kind = stores.S3Store if scheme == "s3" else stores.GCSStore
        return kind(root.partition("://")[2], client_options=client, retry_config=retry, **given)
    except (of.BaseError, OSError, ValueError, TypeError) as error:
        raise BadObject(
            f"{root} cannot be opened ({type(error).__name__}: {error}).",
            "obstore makes a store of the URL, storage_options= and the variables of the environment.",
            "Check the names in storage_options=: those of s3fs (anon, key, secret, endpoint_url) or of obstore.",
        ) from error


def _modules() -> tuple[Any, Any]:
    """Import obstore, which few have, and not before a store is asked: a process that is forked later can then."""
    return importlib.import_module("obstore"), importlib.import_module("obstore.exceptions")


def _identity(meta: Any) -> str:
    """Return the ETag where it stands for the bytes; else time and size, once no later object has the same."""
    etag = meta["e_tag"]
    if etag and not etag.startswith("W/"):
        return f"etag={etag}"
    written = meta["last_modified"]
    if written is None or written.timestamp() <= 0 or datetime.now(UTC) - written < timedelta(seconds=_REST_S):
        return ""
    return f"modified={written.isoformat()} size={meta['size']}"


def _etag_in(identity: str) -> str | None:
    return identity.removeprefix("etag=") if identity.startswith("etag=") else None
