"""Libraries that people train with, plugged in as their users use them; one module for each, and one extra to install it."""
