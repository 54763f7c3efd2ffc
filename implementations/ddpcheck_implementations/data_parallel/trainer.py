"""A whole training run, written once over the other facets: sampler, replica and metrics."""

from __future__ import annotations

from ddpcheck.adapter import AggregateMetrics, Batch, MakeReplica, MakeSampler, TrainingRun, TrainingTask


def train(
    make_replica: MakeReplica, make_sampler: MakeSampler, aggregate: AggregateMetrics, task: TrainingTask
) -> TrainingRun:
    """One optimizer step for each batch; the epoch's loss is weighted by the samples that each rank has seen."""
    replica = make_replica(task.model, task.initial, task.optimizer, {})
    sampler = make_sampler(len(task.inputs), shuffle=task.shuffle, seed=task.seed, drop_last=False)
    losses, indices = [], []
    for epoch in range(task.epochs):
        sampler.set_epoch(epoch)
        order = list(sampler)
        total = 0.0
        for start in range(0, len(order), task.batch_size):
            rows = order[start : start + task.batch_size]
            replica.zero_grad()
            total += len(rows) * replica.backward(Batch(task.inputs[rows], task.targets[rows]))
            if task.max_norm is not None:
                replica.clip(task.max_norm)
            replica.step()
        mean = {"loss": total / len(order) if order else 0.0}
        losses.append(aggregate(mean, len(order)).get("loss", 0.0))
        indices.append(order)
    return TrainingRun(replica.parameters(), losses, indices)
