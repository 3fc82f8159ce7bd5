"""Objects read by obstore: the right bytes or an error, whatever the server does meanwhile.

Modules: flatout.pipeline.read.objects.object_reads.
"""

import pytest
from benchmarks.object_server import ObjectServer
from tests.unit.pipeline.read.objects.served import held, options_of, put

from flatout.errors import BadObject
from flatout.pipeline.read.objects.object_reads import ObjectRequest
from flatout.pipeline.read.objects.obstore_reads import ObstoreReader
from flatout.pipeline.read.objects.store_options import endpoint_of

pytest.importorskip("obstore")


def statuses(server):
    return [status for _, _, status in server.asked]


def test_an_object_comes_whole_with_what_tells_it_apart(server, options):
    [url] = put(server, 1)
    answer = ObstoreReader(options).read(ObjectRequest(url))
    assert answer.data == held(server, url) and type(answer.data) is bytes
    assert answer.identity.startswith('etag="')
    again = ObstoreReader(options).read(ObjectRequest(url, known=answer.identity))
    assert again.data is None and again.identity == answer.identity
    assert statuses(server) == [200, 304]
    server.objects["/bucket/photos/000.bin"] = b"another"
    changed = ObstoreReader(options).read(ObjectRequest(url, known=answer.identity))
    assert changed.data == b"another" and changed.identity != answer.identity


def test_a_range_comes_alone(server, options):
    [url] = put(server, 1)
    reader = ObstoreReader(options)
    assert reader.read(ObjectRequest(url, 2, 9)).data == held(server, url)[2:9]
    assert statuses(server) == [206]
    for start, stop in ((990, 1001), (1000, 1010), (5000, 5001)):
        with pytest.raises(BadObject, match=r"photos/000\.bin"):
            reader.read(ObjectRequest(url, start, stop))


@pytest.mark.parametrize("fault", ["503", "429", "500", "reset", "reset in the middle", "cut off"])
@pytest.mark.parametrize("part", [(None, None), (100, 900)])
def test_what_fails_for_a_moment_is_asked_for_again(server, options, fault, part):
    [url] = put(server, 1)
    server.faults["/bucket/photos/000.bin"] = [fault]
    assert ObstoreReader(options).read(ObjectRequest(url, *part)).data == held(server, url)[part[0] : part[1]]
    assert not server.faults["/bucket/photos/000.bin"]


@pytest.mark.parametrize("fault", ["503", "reset", "reset in the middle", "cut off"])
def test_what_fails_for_good_is_an_error(server, options, fault):
    [url] = put(server, 1)
    server.faults["/bucket/photos/000.bin"] = [fault] * 100
    with pytest.raises(BadObject, match=r"photos/000\.bin could not be read") as raised:
        ObstoreReader(options).read(ObjectRequest(url))
    assert "Debug source" not in str(raised.value) and raised.value.advice


def test_an_object_that_changes_while_its_rest_is_asked_for_is_no_mixture(server, options):
    [url] = put(server, 1)
    first, second = held(server, url), b"x" * 1000
    server.faults["/bucket/photos/000.bin"] = ["cut off"]
    sent = []

    class Changing(dict):
        def get(self, path, *default):
            sent.append(path)
            return first if len(sent) == 1 else second

    server.objects = Changing(server.objects)
    try:
        got = ObstoreReader(options).read(ObjectRequest(url)).data
    except BadObject:
        got = second
    assert len(sent) > 1 and got in (first, second)


@pytest.mark.parametrize(("fault", "words"), [("404", "is missing"), ("403", "credentials")])
def test_what_is_missing_or_forbidden_is_said_at_once(server, options, fault, words):
    [url] = put(server, 1)
    server.faults["/bucket/photos/000.bin"] = [fault] * 9
    with pytest.raises(BadObject, match=words):
        ObstoreReader(options).read(ObjectRequest(url))
    assert len(server.asked) == 1


def test_a_server_that_gives_more_than_the_range_is_an_error(server, options):
    [url] = put(server, 1)
    server.faults["/bucket/photos/000.bin"] = ["no range"] * 9
    with pytest.raises(BadObject, match="could not be read"):
        ObstoreReader(options).read(ObjectRequest(url, 2, 9))


def test_names_are_asked_for_as_they_stand(server, options):
    reader = ObstoreReader(options)
    for key in ("a b", "a%20b", "a+b&c=d", "ü/ö", "[1]{2}~!$'()*,;:@", 'a"b<c>|^`', "e\u0301", "a\\b", "%", "#", "?x"):
        server.objects[f"/bucket/{key}"] = key.encode()
        assert reader.read(ObjectRequest(f"s3://bucket/{key}")).data == key.encode()


def test_over_http_the_path_is_the_one_of_the_url(server, options):
    reader = ObstoreReader({"retry_config": options["retry_config"]})
    server.objects["/a b/ü.jpg"] = b"1"
    assert reader.read(ObjectRequest(f"{server.url}/a%20b/%C3%BC.jpg")).data == b"1"


@pytest.mark.parametrize(("etags", "dated"), [("weak", True), ("none", True), ("none", False)])
def test_without_a_strong_etag_a_young_object_is_not_told_apart(etags, dated, monkeypatch):
    with ObjectServer(etags=etags, dated=dated) as server:
        [url] = put(server, 1)
        reader = ObstoreReader(options_of(server))
        assert reader.read(ObjectRequest(url)).identity == ""  # it may be written again within the same second
        monkeypatch.setattr("flatout.pipeline.read.objects.obstore_reads._REST_S", -9.0)
        later = reader.read(ObjectRequest(url))
        assert bool(later.identity) == dated
        if dated:
            assert reader.read(ObjectRequest(url, known=later.identity)).data is None
            server.objects["/bucket/photos/000.bin"] = b"longer" * 999
            assert reader.read(ObjectRequest(url, known=later.identity)).data == b"longer" * 999


def test_options_are_taken_in_both_vocabularies(server, monkeypatch):
    [url] = put(server, 1)
    for given in (
        {"anon": True, "client_kwargs": {"endpoint_url": server.url, "region_name": "eu-west-1"}},
        {"skip_signature": True, "endpoint": server.url},
    ):
        assert endpoint_of(given) == server.url
        assert ObstoreReader(given).read(ObjectRequest(url)).data == held(server, url)
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    assert ObstoreReader({"anon": True}).read(ObjectRequest(url)).data == held(server, url)
    with pytest.raises(BadObject, match="cannot be opened"):
        ObstoreReader({"colour": "red"}).read(ObjectRequest(url))
