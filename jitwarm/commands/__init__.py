"""What each command of `jitwarm` does, as a function of its options that returns an exit code."""
