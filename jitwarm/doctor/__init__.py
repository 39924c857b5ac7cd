"""`jitwarm doctor`: ask a machine what it has, and conclude what follows for warm-up and caches."""
