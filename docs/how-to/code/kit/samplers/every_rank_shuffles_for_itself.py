import random


class Sampler:
    def __init__(self, length, rank, world_size, shuffle, seed):
        self.length, self.rank, self.world_size = length, rank, world_size
        self.shuffle, self.seed, self.epoch = shuffle, seed, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        order = list(range(self.length))
        if self.shuffle:
            random.Random(f"{self.seed}, {self.epoch}, {self.rank}").shuffle(order)
        while order and len(order) % self.world_size:
            order += order[: -len(order) % self.world_size]
        return iter(order[self.rank :: self.world_size])

    def __len__(self):
        return -(-self.length // self.world_size)
