"""The pictures of the notebooks: a module per notebook, a function per picture, from plain data to a `Figure`.

They build `Figure` objects themselves, not through pyplot: nothing stays open, no backend is chosen for the caller.
"""
