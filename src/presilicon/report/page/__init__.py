"""HTML pages that need nothing but a browser: comparisons, instrument readings, schedules."""
