"""Training libraries, used as in their documentation: one module for each, and one extra to install it."""
