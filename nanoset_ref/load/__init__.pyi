from .context_parallel_collator import (
    DataCollatorForCLMWithPositionIds as DataCollatorForCLMWithPositionIds,
)
from .nanotron_folders import DatatroveNanoset as DatatroveNanoset
