"""Objects on a server, for tests."""

from datetime import timedelta


def options_of(server):
    """Return what a data set needs to find this server, with few and short waits between tries."""
    few = {"init_backoff": timedelta(milliseconds=5), "max_backoff": timedelta(milliseconds=20), "base": 2}
    return {
        "key": "any",
        "secret": "any",
        "endpoint_url": server.url,
        "retry_config": {"max_retries": 3, "retry_timeout": timedelta(seconds=20), "backoff": few},
    }


def put(server, number, size=1000, folder="photos"):
    """Put objects that differ from one another on a server; return their URLs."""
    for at in range(number):
        server.objects[f"/bucket/{folder}/{at:03}.bin"] = at.to_bytes(4, "little") * (size // 4)
    return [f"s3://bucket/{folder}/{at:03}.bin" for at in range(number)]


def held(server, url):
    """Return the object of a URL as the server has it."""
    return server.objects["/" + url.removeprefix("s3://")]
