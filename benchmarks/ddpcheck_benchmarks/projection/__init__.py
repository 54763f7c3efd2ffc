"""What a cluster would take that is not here: a cost model, fitted and validated, and a simulation that checks it."""
