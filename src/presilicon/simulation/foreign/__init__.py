"""Other simulators: their times in place of ours, and our steps in their formats."""
