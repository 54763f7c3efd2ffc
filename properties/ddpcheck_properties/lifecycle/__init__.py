"""The life of ranks from start to end: they find each other, fail together, and leave nothing behind."""
