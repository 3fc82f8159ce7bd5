"""The parts of async-checkpoint: files written in the background and seen only once they are whole."""
