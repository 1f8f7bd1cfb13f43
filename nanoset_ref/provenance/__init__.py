"""Provenance of tokens: which files a step reads, when a document is read, whether a run keeps the
laws (docs/laws.md).

lookup                  `where` and `when` for a dataset
auditing, spread        simulate all ranks of a run before it begins
continuation            the tokens that a changed plan repeats or loses
search                  ids or a text in token files
card_facts, card        cards: the order of a whole run in 10 kB
card_rules, card_sizes  what a card may hold; the sizes of its files
card_data, card_rows    the rows of a card from its token files, local or published
card_writer, card_readers  cards of our runs, and of other systems' configs
card_checks             audit and compare cards
stage_reader, bulk      many queries at once
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
