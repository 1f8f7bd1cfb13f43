"""Files that are complete or absent; paths and URLs, buckets, cached pieces and indexes, kernels."""
