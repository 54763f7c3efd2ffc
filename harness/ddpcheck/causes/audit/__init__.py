"""Why a training script on several ranks is not the run of one process: told by an audit, with the script's own line."""

from . import accumulation, data, gradients, replicas, results, steps, world

__all__ = ["accumulation", "data", "gradients", "replicas", "results", "steps", "world"]
