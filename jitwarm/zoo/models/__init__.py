"""Model stacks: which layer registers what, and the launches of a step."""
