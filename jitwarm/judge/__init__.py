"""Judge: from plans, launches and events to coverage, explained misses and findings."""
