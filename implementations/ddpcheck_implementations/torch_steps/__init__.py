"""Data-parallel training in torch, step by step. Each step is a file that does not use ddpcheck.

    1  monolith   one process, one model, the whole batch: deep_mlp.py and nothing else
    2  manual     two copies of the model, the batch split between them, gradients averaged by hand
    3  naive      one process per copy, one all-reduce per parameter after backward, through communication.py
    4  hooks      gradient hooks fill buckets and start their all-reduces while backward still runs

adapters.py plugs them into ddpcheck.
"""
