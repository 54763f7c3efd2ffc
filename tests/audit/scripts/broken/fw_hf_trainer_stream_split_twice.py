"""Stream of examples into the transformers Trainer."""

import os

import torch
from torch import nn
from torch.utils.data import IterableDataset
from transformers import PretrainedConfig, PreTrainedModel, Trainer, TrainingArguments


class Cfg(PretrainedConfig):
    model_type = "tinyreg"


class Reg(PreTrainedModel):
    config_class = Cfg

    def __init__(self, config):
        super().__init__(config)
        self.net = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 1))
        self.post_init()

    def _init_weights(self, module):
        pass

    def forward(self, x=None, labels=None):
        out = self.net(x).squeeze(-1)
        loss = nn.functional.mse_loss(out, labels) if labels is not None else None
        return {"loss": loss, "logits": out}


class Stream(IterableDataset):
    """Lines of a (pretended) file; each process reads every WORLD_SIZE-th."""

    def __init__(self, n=512):
        self.n = n
        self.rank = int(os.environ.get("RANK", 0))
        self.world = int(os.environ.get("WORLD_SIZE", 1))

    def line(self, i):
        g = torch.Generator().manual_seed(i)
        x = torch.randn(8, generator=g)
        return {"x": x, "labels": x.abs().sum()}

    def __iter__(self):
        for i in range(self.n):
            if i % self.world == self.rank:
                yield self.line(i)


def main():
    args = TrainingArguments(
        output_dir="out",
        per_device_train_batch_size=8,
        max_steps=24,
        learning_rate=1e-3,
        logging_steps=8,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        seed=3,
        max_grad_norm=1.0,
        lr_scheduler_type="constant",
    )
    trainer = Trainer(model=Reg(Cfg()), args=args, train_dataset=Stream())
    trainer.train()


if __name__ == "__main__":
    main()
