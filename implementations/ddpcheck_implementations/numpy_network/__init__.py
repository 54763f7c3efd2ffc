"""A neural network in NumPy whose backward pass is written by hand, layer by layer.

Network builds any ddpcheck ModelSpec; make_optimizer makes SGD or Adam. Nothing here depends on ranks: data_parallel/ adds
them, through a callback for each gradient that backward has completed.
"""

from .network import Network, OnGradient
from .optimizers import Adam, Optimizer, Sgd, make_optimizer

__all__ = ["Adam", "Network", "OnGradient", "Optimizer", "Sgd", "make_optimizer"]
