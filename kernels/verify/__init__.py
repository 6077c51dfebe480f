"""The kit for the first day on a 910B. It needs nothing of tests/."""
