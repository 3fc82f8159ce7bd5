"""Which library reads a URL, and what it asks for."""

import pytest

from flatout.pipeline.read.objects.object_urls import FSSPEC, LOCAL, OBSTORE, Location, is_plain_key, location_of


@pytest.mark.parametrize(
    ("url", "root", "key"),
    [
        ("s3://bucket/a/b.jpg", "s3://bucket", "a/b.jpg"),
        ("s3a://bucket/a b%20c", "s3://bucket", "a b%20c"),  # keys are not decoded
        ("S3://Bucket/ü?x#y", "s3://Bucket", "ü?x#y"),
        ("gcs://bucket/a", "gs://bucket", "a"),
        ("https://host/a%20b/c.jpg", "https://host", "a b/c.jpg"),  # those of URLs are
        ("http://127.0.0.1:80/x", "http://127.0.0.1:80", "x"),
    ],
)
def test_what_obstore_names_alike_is_read_by_it(url, root, key):
    assert location_of(url) == Location(OBSTORE, root, key)


@pytest.mark.parametrize(
    "url",
    [
        "s3://bucket/a//b",
        "s3://bucket//a",
        "s3://bucket/a/",  # obstore would ask for a
        "s3://bucket/./a",
        "s3://bucket/a/../b",
        "s3://bucket/a\nb",
        "s3://bucket",
        "s3://bucket/a?versionId=7",
        "https://host/a?signature=x",
        "https://host/a#b",
        "https://user:word@host/a",
        "https://host/a%2Fb",  # decoded, another path
        "https://host/%ff",
        "https://host/a%00",
        "https://host/a/",
        "https://host/",
        "https://host:x/a",
        "az://container/a",
        "hf://datasets/a/b",
        "memory://a",
    ],
)
def test_everything_else_is_left_to_fsspec_as_it_stands(url):
    assert location_of(url) == Location(FSSPEC, "", url)


def test_paths_are_of_this_machine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/of/somebody")
    assert location_of("a.jpg") == location_of(f"file://{tmp_path}/a.jpg") == Location(LOCAL, "", f"{tmp_path}/a.jpg")
    assert location_of("~/a%20b").key == "/home/of/somebody/a%20b"


def test_a_key_is_plain_where_no_part_of_it_is_lost():
    assert is_plain_key("a/b c/~[1]{%}") and is_plain_key("...")
    assert not any(map(is_plain_key, ("", "/a", "a/", "a//b", ".", "a/..", "a\tb", "a\x7f")))
