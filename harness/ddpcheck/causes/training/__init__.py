"""Why a training run ends elsewhere than one process."""

from . import best_weights, early_stopping, epoch_losses, resumes, samples, schedules, steps

__all__ = ["best_weights", "early_stopping", "epoch_losses", "resumes", "samples", "schedules", "steps"]
