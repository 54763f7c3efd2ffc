"""What a run consists of beside the road: adapters by name, the plan, the limits of hangs, groups of failures."""
