"""State that emulation carries from pass to pass and from step to step."""
