"""The training step, its losses and callbacks, and the folder of a run."""
