"""From raw subsets to training chunks: download, tokenise and concatenate, mix and split, validate."""
