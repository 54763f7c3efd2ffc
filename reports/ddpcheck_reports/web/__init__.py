"""One self-contained HTML page of a result file of `ddpcheck check` or `ddpcheck audit`."""
