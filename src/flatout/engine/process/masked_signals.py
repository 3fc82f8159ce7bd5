"""Threads of ours beside a script: signals are for the main thread, which hands them on."""

import signal

__all__ = ["block_signals"]


def block_signals() -> None:
    """Let no signal be delivered to the calling thread."""
    signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))
