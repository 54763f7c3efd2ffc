"""What ranks must do from start to end: find each other, fail together, and leave nothing behind."""
