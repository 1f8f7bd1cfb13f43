"""Where the tokens of a step come from, when a document is read, and whether a run will keep the laws."""

from nanoset_ref.provenance.auditing import Check, Report, StretchReport, audit
from nanoset_ref.provenance.continuation import Continuation, FileDifference, compare, ledger_of, loader_state
from nanoset_ref.provenance.lookup import RowOrigin, row_origin, when, where
from nanoset_ref.provenance.search import find, find_text
from nanoset_ref.provenance.stretches import Stretch, stretches_of_config

__all__ = [
    "Check",
    "Continuation",
    "FileDifference",
    "Report",
    "RowOrigin",
    "Stretch",
    "StretchReport",
    "audit",
    "compare",
    "find",
    "find_text",
    "ledger_of",
    "loader_state",
    "row_origin",
    "stretches_of_config",
    "when",
    "where",
]
