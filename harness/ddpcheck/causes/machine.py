"""Resources that the machine refuses to any implementation: these causes do not blame an adapter."""

from .cause import Kind

SYSTEM_REFUSES_RESOURCE = Kind(
    "system-refuses-resource",
    "The system refuses {resource}.",
    because="A limit, a full disk or too little memory ended the call, which says nothing of the implementation.",
    look="ulimit -a, df and free; then whether the implementation needs more of it from call to call",
    certainty="certain",
    resource=str,
)
NO_LOOPBACK = Kind(
    "no-loopback",
    "This machine has no loopback network: 127.0.0.1 cannot be reached.",
    because="Ranks of one host meet at 127.0.0.1. In a network namespace or a container, the interface lo may be down.",
    look="ip link set lo up",
    certainty="certain",
)
NO_FREE_PORT = Kind(
    "no-free-port",
    "All ports at which ranks may meet are taken.",
    because="Each Session keeps one port from {first} to {last} on 127.0.0.1.",
    look="ss -ltn, and MASTER_PORT",
    certainty="certain",
    first=int,
    last=int,
)
