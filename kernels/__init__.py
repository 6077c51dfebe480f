"""What Python needs of the kernels: the kit for a 910B, and what its tests share with it."""
