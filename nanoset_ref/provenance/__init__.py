"""Provenance of tokens: which files a step reads, when a document is read, and audits of runs.

lookup                        `where` and `when` for a dataset
run_segments                  the parts of a run that audits and queries take; `replay`
auditing, spread              simulate all ranks of a run before it begins
continuation                  the tokens that a changed plan repeats or loses
passage_search                ids or texts in token files
card_facts, card              cards: the order of a whole run in at most 10 kB
card_validation, card_sizes   what a card may hold; the sizes of its files
card_segments                 the stages of a card on its token files
published_rows                the rows of a card from its published files
olmo_core_rows                rows that OLMo-core packs, read from its files
card_of_run                   the card of a run of nanoset_ref
config_cards, loader_config   cards from the configs of other loaders; one of these configs
nanotron_cards                cards from Nanotron's YAML
megatron_cards                cards from the arguments of Megatron-LM, and GPT-NeoX's YAML
olmo_core_cards, llm_c_cards  cards from OLMo-core's config.json, and llm.c's arguments
card_audit, card_comparison   checks of a card; where two cards differ
stage_reader, bulk_queries    many queries at once
skipped_rows                  the rows to skip so that a run never reads some documents
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
