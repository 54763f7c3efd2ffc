"""Torch wrappers as they are written by hand: the right ones and the wrong ones."""
