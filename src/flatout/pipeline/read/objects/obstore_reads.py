"""Objects of S3, GCS and HTTP by obstore: it signs, keeps connections, repeats what failed, and checks lengths."""

import importlib.util
import os
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from flatout.errors import BadObject
from flatout.pipeline.read.objects.object_reads import ObjectAnswer, ObjectRequest, not_whole, refused, unreachable
from flatout.pipeline.read.objects.object_urls import location_of

__all__ = ["ObstoreReader", "endpoint_of"]

_RETRIES, _RETRY_S = 10, 60.0
_IDLE_S = 30.0  # a connection on which nothing comes for so long is given up, and the request repeated
_LONGEST_S = 3600.0  # for one object, however large
_REST_S = 2.0  # times of objects count in seconds: what is younger may be written again in the same one
_NAMES = {
    "anon": "skip_signature",
    "key": "access_key_id",
    "secret": "secret_access_key",
    "token": "session_token",
    "endpoint_url": "endpoint",
    "region_name": "region",
}
"""What s3fs calls an option, and obstore."""


class ObstoreReader:
    """Stores of one process. obstore's threads do not come along into a forked one."""

    def __init__(self, options: dict[str, Any]) -> None:
        """Take what stores are made with, in the words of s3fs or of obstore; connect to nothing yet."""
        self._options = _renamed(options)
        self._stores: dict[str, Any] = {}
        self._making = threading.Lock()

    def read(self, request: ObjectRequest) -> ObjectAnswer:
        """Return an object.

        Raises:
            BadObject: it is missing, may not be read, or does not come whole.
        """
        import obstore
        from obstore import exceptions as of

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
        import obstore

        try:
            metas: Iterator[Any] = (meta for part in obstore.list(self._store(root), prefix or None) for meta in part)
            return sorted(meta["path"] for meta in metas)
        except any_error() as error:
            raise unreachable(f"{root}/{prefix}", error, "Check that it may be listed, or name the objects.") from error

    def _store(self, root: str) -> Any:
        with self._making:
            if root not in self._stores:
                self._stores[root] = _made(root, self._options)
            return self._stores[root]


def any_error() -> tuple[type[Exception], ...]:
    """Return what obstore raises."""
    from obstore.exceptions import BaseError

    return (BaseError, OSError, ValueError)


def endpoint_of(options: dict[str, Any]) -> str:
    """Return where stores of S3 are asked for, where that is named; empty for Amazon's own."""
    named = _renamed(options)
    names = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
    return str(named.get("endpoint") or named.get("aws_endpoint") or next(filter(None, map(os.environ.get, names)), ""))


def _made(root: str, options: dict[str, Any]) -> Any:
    from obstore.store import GCSStore, HTTPStore, S3Store

    scheme = root.partition("://")[0]
    given = dict(options)
    over_http = (root if scheme == "http" else endpoint_of(options)).startswith("http://")
    client = {"read_timeout": timedelta(seconds=_IDLE_S), "timeout": timedelta(seconds=_LONGEST_S)}
    client |= {"allow_http": True} if over_http else {}
    client |= given.pop("client_options", None) or {}
    retry = {"max_retries": _RETRIES, "retry_timeout": timedelta(seconds=_RETRY_S)}
    retry |= given.pop("retry_config", None) or {}
    try:
        if scheme in ("http", "https"):
            return HTTPStore.from_url(root, client_options=client, retry_config=retry)
        if scheme == "s3":
            given = _with_credentials(given)
            if endpoint := endpoint_of(options):
                given["endpoint"] = endpoint
        kind = S3Store if scheme == "s3" else GCSStore
        return kind(root.partition("://")[2], client_options=client, retry_config=retry, **given)
    except (*any_error(), TypeError) as error:
        raise BadObject(
            f"{root} cannot be opened ({type(error).__name__}: {error}).",
            "obstore makes a store of the URL, storage_options= and the variables of the environment.",
            "Check the names in storage_options=: those of s3fs (anon, key, secret, endpoint_url) or of obstore.",
        ) from error


def _with_credentials(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options, with the credentials of a profile where nothing else names any and boto3 is there."""
    if {"access_key_id", "aws_access_key_id", "skip_signature", "credential_provider"} & {*options}:
        return options
    if "AWS_ACCESS_KEY_ID" in os.environ or importlib.util.find_spec("boto3") is None:
        return options
    folder = Path.home() / ".aws"
    if not any(name in os.environ for name in ("AWS_PROFILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE")) and (
        not (folder / "credentials").exists() and not (folder / "config").exists()
    ):
        return options
    from obstore.auth.boto3 import Boto3CredentialProvider

    return {**options, "credential_provider": Boto3CredentialProvider()}


def _renamed(options: dict[str, Any]) -> dict[str, Any]:
    flat = {**options, **(options.get("client_kwargs") or {})}
    flat.pop("client_kwargs", None)
    return {_NAMES.get(name, name): value for name, value in flat.items() if value is not None}


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
