"""Settings of the process that samples may come out otherwise under: they are no part of a data set."""

import os
import sys
import time

__all__ = ["ambient"]


def ambient(folder: bool) -> tuple[object, ...]:
    """Return torch's and NumPy's settings and modes, the time zone, and the current folder where `folder`.

    While they are others than they were when samples were kept, the script's own code makes the batches.
    """
    torch, numpy, decimal = sys.modules["torch"], sys.modules.get("numpy"), sys.modules.get("decimal")
    return (
        torch.get_default_dtype(),
        torch.is_autocast_enabled("cpu"),
        torch._C._len_torch_function_stack(),
        torch._C._len_torch_dispatch_stack(),
        torch.are_deterministic_algorithms_enabled(),
        None if numpy is None else tuple(numpy.geterr().values()),
        time.tzname,
        None if decimal is None else (decimal.getcontext().prec, decimal.getcontext().rounding),
        os.getcwd() if folder else None,
    )
