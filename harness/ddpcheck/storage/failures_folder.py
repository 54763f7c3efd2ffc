"""The folder for failing Jobs, and for texts that are printed in part, unless a command or a caller names another."""

FAILURES_FOLDER = "ddpcheck-failures"
