"""Says what of this machine and installation is right, and what mends the rest.

Nothing heavy is imported here or in its modules, but for `loss_check` and `replay`, which run in
processes of their own.
"""
