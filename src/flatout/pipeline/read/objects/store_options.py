"""What stores are opened with: credentials, endpoint, region, in the words of fsspec's packages or of obstore."""

import importlib.util
import json
import os
from pathlib import Path
from typing import Any

__all__ = ["endpoint_of", "named_for", "needs_profile", "told"]

_S3 = {
    "anon": "skip_signature",
    "key": "access_key_id",
    "secret": "secret_access_key",
    "token": "session_token",
    "endpoint_url": "endpoint",
    "region_name": "region",
    "requester_pays": "request_payer",
}
_GCS = {"anon": "skip_signature", "endpoint_url": "base_url"}
_LOGINS = {"access_key_id", "aws_access_key_id", "skip_signature", "credential_provider"}
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_ACCOUNTS = (*_ENDPOINTS, "AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_CONNECTION_STRING", "STORAGE_EMULATOR_HOST")
_PROFILES = ("AWS_PROFILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE")
_PASSING = ("key", "secret", "token", "password", "credential", "retry", "sas")  # what renews, or changes no object


def named_for(scheme: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return options as obstore names those of a kind of store (`s3`, `gs`)."""
    flat = {**options, **(options.get("client_kwargs") or {})}
    flat.pop("client_kwargs", None)
    if scheme == "s3":
        return {_S3.get(name, name): value for name, value in flat.items() if value is not None}
    token = flat.pop("token", None)
    if token == "anon":
        flat["anon"] = True
    elif isinstance(token, str | os.PathLike):
        flat["application_credentials"] = os.fspath(token)
    elif token is not None:
        flat["token"] = token  # obstore refuses it
    flat.pop("project", None)
    return {_GCS.get(name, name): value for name, value in flat.items() if value is not None}


def endpoint_of(options: dict[str, Any]) -> str:
    """Return where stores of S3 are asked for, where that is named; empty for Amazon's own."""
    named = named_for("s3", options)
    around = next(filter(None, map(os.environ.get, _ENDPOINTS)), "")
    return str(named.get("endpoint") or named.get("aws_endpoint") or around)


def needs_profile(options: dict[str, Any]) -> bool:
    """Return whether credentials are those of a profile that boto3 reads: nothing else names any."""
    if _LOGINS & {*options} or "AWS_ACCESS_KEY_ID" in os.environ or importlib.util.find_spec("boto3") is None:
        return False
    folder = Path.home() / ".aws"
    return any(map(os.environ.get, _PROFILES)) or (folder / "credentials").exists() or (folder / "config").exists()


def told(options: dict[str, Any]) -> str:
    """Return what of options and environment says which store a URL means: equal texts, the same objects."""
    kept = {name: value for name, value in options.items() if not any(part in name for part in _PASSING)}
    around = {name: os.environ[name] for name in _ACCOUNTS if name in os.environ}
    return json.dumps([kept, around], sort_keys=True, default=lambda value: type(value).__qualname__)
