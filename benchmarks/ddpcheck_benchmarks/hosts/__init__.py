"""Several hosts on one machine: network namespaces, joined by links of a given rate."""
