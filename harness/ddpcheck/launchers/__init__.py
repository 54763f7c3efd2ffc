"""Launchers: they start and end the processes of ranks. A new one implements base.Launcher and registers by entry point.

processes      plain processes, by default forked from fork_servers
multiprocess   Python's fork, spawn and forkserver
mpi, torchrun  other engines' launchers, behind agent
attached       ranks that a user starts
"""
