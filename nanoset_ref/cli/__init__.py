"""nanoset-ref: one command for token files, orders and runs.

Every subcommand prints text for people; most read-only ones also print JSON (--json). An
error is one line on standard error. Exit codes:

    0   done
    1   the input is wrong, or a law is broken
    2   the command line is wrong
    3   done in part: more than 1 % of the documents could not be used and were left out
        (--on-error skip), or a law could not be judged

A command's module is imported when the command is chosen, so a command loads neither torch nor
another package that it does not use.

subcommands                 the table of commands; the chosen one is run
arguments                   the command line of a function; types of options
command, startup            a function run as a command; the start of a process
run_options                 options that name a run
file_commands               inspect, verify, convert, merge, split
lookup_commands             show, where, when
run_commands                replay, skip, audit, loss
card_commands               card, compare
estimate_command            estimate
estimate_sources            the sizes of a stage's sources, for estimate
datatrove_step              commands as a step of a datatrove pipeline

The other commands are in their own packages.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
