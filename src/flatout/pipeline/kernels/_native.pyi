"""Addresses of memory in, images or rows out: nothing is checked here; native.py and bundles.py do."""

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
    threads: int,
    /,
) -> None: ...
def gather(
    rows: int, num_rows: int, row_bytes: int, indices: int, places: int, number: int, threads: int, /
) -> bool: ...
def pixels(schema: object, array: object, pixels: int, channels: int, out: int, /) -> bool: ...
def use(level: int, /) -> int: ...
