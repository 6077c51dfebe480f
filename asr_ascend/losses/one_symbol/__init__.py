"""The lattice in which a label also takes a frame: one symbol per frame."""
