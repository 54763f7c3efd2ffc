"""by_ray.py RANKS env NAME=VALUE... python -m ddpcheck.worker ADAPTER: the ranks are the workers of a Ray TorchTrainer.

ddpcheck appends the words after RANKS. A rank runs inside the train function, since prepare_model() works only there.
"""

import os
import sys
from pathlib import Path


def join(told):
    os.environ.update(told["variables"])
    from ddpcheck.worker import Worker

    secret = Path(os.environ["DDPCHECK_SECRET_FILE"]).read_text(encoding="ascii")
    Worker(told["adapter"], secret).serve(os.environ["DDPCHECK_CONTROL"])


def main():
    import ray
    from ray.train import ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    ranks, words = int(sys.argv[1]), sys.argv[3:]
    told = {"variables": dict(word.split("=", 1) for word in words[:-1] if "=" in word), "adapter": words[-1]}
    ray.init()
    scaling = ScalingConfig(num_workers=ranks)
    TorchTrainer(join, train_loop_config=told, torch_config=TorchConfig("gloo"), scaling_config=scaling).fit()


if __name__ == "__main__":
    main()
