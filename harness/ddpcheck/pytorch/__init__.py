"""For torch: a ready-made adapter, and the parts that it is made of."""
