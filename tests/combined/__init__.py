"""Whole runs, drawn from all options of the package at once, each held to `plain.py` and to the laws.

    axes        the options and their values, the combinations that are refused, and how runs are drawn
    expected    what a run has to read, by plain.py
    batches     the positions that each rank reads, and what collators make of rows
    corpora     the files of a run, in every format, in folders and in a bucket
    identity    what a run is changed to before it is resumed
    runs        one run: built, read on every rank, written into, stopped, resumed
    streams     the same for text that is tokenized while the model trains

A new option is a line in AXES, and the place where it is handed over.
"""
