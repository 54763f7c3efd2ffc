"""Launchers: they start and end the processes of ranks. A new launcher implements launcher.Launcher and registers an
entry point.

processes      plain processes, by default forked from fork_servers
multiprocess   Python's fork, spawn and forkserver
mpi, torchrun  launchers of MPI and torch, behind agent
attached       ranks that a user starts
"""
