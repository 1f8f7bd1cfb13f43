from .nanotron_folders import (
    DataCollatorForCLMWithPositionIds as DataCollatorForCLMWithPositionIds,
)
from .nanotron_folders import DatatroveNanoset as DatatroveNanoset
