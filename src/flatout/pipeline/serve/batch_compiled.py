"""Batches made by kernels, from the first pass on."""

from typing import Any

import torch

from flatout.pipeline.read.prefetch import Prefetch
from flatout.pipeline.serve.decision import Reading
from flatout.pipeline.serve.kept_rows import KeptRows
from flatout.watch.dataset_state import random_states, restore_random_states
from flatout.watch.script_signals import any_but_signals

__all__ = ["BatchCompiled"]


class BatchCompiled(KeptRows):
    """Keeps what the kernels make, up to the first random operation; the rest is done for each batch."""

    @property
    def _ready(self) -> bool:
        return True

    @property
    def _draws(self) -> bool:
        return self.kept_rows.compiler is not None and self.kept_rows.compiler.random

    def _add(self, missing: torch.Tensor, prefetch: Prefetch | None) -> tuple[str, Any]:
        self.kept_rows.make(missing, prefetch.take(missing.tolist()) if prefetch is not None else None)
        return "", None

    def _lowered(self) -> bool:
        """Let rows be kept as they are asked for, where a sample does not suit the kernels."""
        if self._draws:
            return False
        self.give_way(KeptRows(self._served, self._passes, self.staleness, Reading()))
        return True

    def _taken(self, indices: torch.Tensor, stream: torch.Generator | None, prefetch: Prefetch | None) -> Any:
        """Return a batch; where a kernel fails, the script's own, from the same random state."""
        before = random_states() if self._draws and stream is None else None
        began = stream.get_state() if stream is not None else None
        try:
            given = prefetch.take(indices.tolist()) if prefetch is not None and self.kept_rows.direct else None
            return self.kept_rows.take(indices, stream, given)
        except any_but_signals() as error:  # the script's own call will say it, if it is the script's
            self._refuse(f"making whole batches raised {type(error).__name__}")
        if stream is not None and began is not None:
            stream.set_state(began)
        if before is not None:
            restore_random_states(before)
        return self._served.as_plain(indices, stream)
