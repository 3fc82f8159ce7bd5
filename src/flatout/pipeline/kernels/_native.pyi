"""Addresses of memory in, images out: nothing is checked here; native.py does."""

def operate(
    operations: int,
    number: int,
    images: int,
    height: int,
    width: int,
    channels: int,
    lead: bool,
    rows: int,
    first: int,
    last: int,
    out: int,
    out_bytes: int,
    places: int,
    threads: int,
    /,
) -> None: ...
def pixels(schema: object, array: object, pixels: int, channels: int, out: int, /) -> bool: ...
def use(level: int, /) -> int: ...
