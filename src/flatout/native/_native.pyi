"""Addresses of memory in, images out: nothing but places of rows is checked here; native.py does."""

def operate(
    operations: int,
    number: int,
    images: int,
    height: int,
    width: int,
    channels: int,
    lead: int,
    num_images: int,
    rows: int,
    first: int,
    last: int,
    out: int,
    out_bytes: int,
    num_out: int,
    places: int,
    each: int,
    threads: int,
    waiting: bool,
    /,
) -> None: ...
def pixels(schema: object, array: object, pixels: int, channels: int, out: int, /) -> bool: ...
def use(level: int, /) -> int: ...
def records(
    records: int,
    record_bytes: int,
    total: int,
    places: int,
    number: int,
    each: int,
    fields: int,
    num_fields: int,
    memory: int,
    /,
) -> None: ...
