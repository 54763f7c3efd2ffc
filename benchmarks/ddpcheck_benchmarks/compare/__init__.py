"""`ddpcheck compare`: implementations in turns in one run, so that a drift of the machine meets all of them."""
