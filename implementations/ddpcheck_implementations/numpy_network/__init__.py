"""A neural network in NumPy whose backward pass is written by hand, layer by layer.

Network builds any ddpcheck ModelSpec; make_optimizer gives SGD or Adam. Nothing here knows of ranks: the
data-parallel engine beside this package does, and it is told of each gradient as soon as backward has finished it.
"""

from .network import Network, OnGradient
from .optimizers import Adam, Optimizer, Sgd, make_optimizer

__all__ = ["Adam", "Network", "OnGradient", "Optimizer", "Sgd", "make_optimizer"]
