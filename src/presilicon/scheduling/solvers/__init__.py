"""Ways to find a schedule: event by event, HEFT, search, exact proof; and the bounds that they are held against."""
