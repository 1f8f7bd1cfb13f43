from .collator import Collator as Collator, DataCollatorForCLM as DataCollatorForCLM, TensorPointer as TensorPointer, to_device as to_device
from .corpus import prepare_corpus as prepare_corpus
from .dataloader import EmptyInfiniteDataset as EmptyInfiniteDataset, NanosetDataLoader as NanosetDataLoader, PlanMismatch as PlanMismatch, build_nanoset_dataloader as build_nanoset_dataloader
from .documents import DocumentOptions as DocumentOptions
from .formats import open_tokens as open_tokens, verify as verify
from .nanoset import Nanoset as Nanoset
from .orders import Ledger as Ledger, NanotronOrder as NanotronOrder, Order as Order, SkippingOrder as SkippingOrder, StatelessOrder as StatelessOrder, build_order as build_order
from .provenance import Stretch as Stretch, audit as audit, when as when, where as where
from .rows import Rows as Rows, SampleBlock as SampleBlock
from .samplers import ResumableBatchSampler as ResumableBatchSampler, SkipBatchSampler as SkipBatchSampler, worker_seed as worker_seed
from .schedule import Schedule as Schedule
from .tokenise import Encoder as Encoder, load_tokenizer as load_tokenizer
from .tokens import TokenFile as TokenFile, TokenFileError as TokenFileError, TokenFileWriter as TokenFileWriter, Tokens as Tokens
