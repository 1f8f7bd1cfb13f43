"""A module for each notebook: its opening, what its folds and figures show, the rules of its exercises."""
