"""Pictures: one function per figure, from plain data to a matplotlib Figure, used by the notebooks and nowhere else.

They build `Figure` objects themselves, not through pyplot: nothing stays open, no backend is chosen for the caller.
"""
