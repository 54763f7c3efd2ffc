"""`ddpcheck compare`: implementations in turns in one run, so that drift of the machine affects all of them equally."""
