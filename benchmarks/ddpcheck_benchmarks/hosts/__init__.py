"""Several hosts on one machine: network namespaces that are joined by links of a given rate."""
