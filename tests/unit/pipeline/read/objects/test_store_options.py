"""What stores are opened with."""

import importlib.util
from types import SimpleNamespace

import pytest

from flatout.pipeline.read.objects.store_options import endpoint_of, named_for, needs_profile, told


def test_options_of_s3fs_and_gcsfs_are_named_as_obstore_does():
    given = {"key": "k", "secret": "s", "anon": None, "client_kwargs": {"endpoint_url": "http://h", "region_name": "r"}}
    named = {"access_key_id": "k", "secret_access_key": "s", "endpoint": "http://h", "region": "r"}
    assert named_for("s3", given) == named_for("s3", named) == named
    assert named_for("gs", {"token": "anon", "project": "p"}) == {"skip_signature": True}
    assert named_for("gs", {"token": "/key.json"}) == {"application_credentials": "/key.json"}
    assert named_for("gs", {"endpoint_url": "http://h"}) == {"base_url": "http://h"}


def test_the_endpoint_is_the_one_that_obstore_would_take(monkeypatch):
    assert endpoint_of({}) == ""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://b")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://a")
    assert endpoint_of({}) == "http://a"
    assert endpoint_of({"endpoint_url": "http://c"}) == endpoint_of({"aws_endpoint": "http://c"}) == "http://c"


@pytest.mark.parametrize("name", ["endpoint_url", "account_name", "region", "host", "repo", "client_kwargs"])
def test_what_names_another_store_tells_another_text(name):
    assert len({told({name: "a"}), told({name: "b"}), told({})}) == 3


def test_what_renews_tells_the_same_text(monkeypatch):
    assert told({"key": "a", "secret": "b", "token": "c", "retry_config": {}}) == told({"key": "d"}) == told({})
    assert told({"fs": object()}) == told({"fs": object()})
    plain = told({})
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "other")
    assert told({}) != plain


def test_a_profile_is_asked_for_where_nothing_else_names_credentials(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: SimpleNamespace(name=name))
    assert not needs_profile({})
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "config").write_text("[default]")
    assert needs_profile({})
    for login in ("access_key_id", "skip_signature", "credential_provider"):
        assert not needs_profile({login: "x"})
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    assert not needs_profile({})
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert not needs_profile({})
