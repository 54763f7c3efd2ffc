"""Files: Jobs and results as plain data, written, read and run again."""
