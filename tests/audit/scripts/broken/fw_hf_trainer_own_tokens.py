"""Hugging Face Trainer: each rank divides its loss by its own tokens, and their numbers differ."""

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

PAD = 0


class Texts(Dataset):
    def __init__(self, count):
        g = torch.Generator().manual_seed(6)
        self.tokens = torch.randint(1, 64, (count, 16), generator=g)
        self.lengths = torch.randint(3, 17, (count,), generator=g)

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        seen = torch.arange(16) < self.lengths[index]
        tokens = torch.where(seen, self.tokens[index], PAD)
        labels = torch.where(seen, tokens, -100)
        return {"input_ids": tokens, "attention_mask": seen.long(), "labels": labels}


def main():
    set_seed(1)
    config = GPT2Config(
        vocab_size=64, n_positions=16, n_embd=32, n_layer=2, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0
    )
    arguments = TrainingArguments(
        output_dir="out",
        use_cpu=True,
        max_steps=10,
        per_device_train_batch_size=4,
        learning_rate=1e-3,
        average_tokens_across_devices=False,
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    Trainer(model=GPT2LMHeadModel(config), args=arguments, train_dataset=Texts(120)).train()


if __name__ == "__main__":
    main()
