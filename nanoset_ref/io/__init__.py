"""Files that are complete or absent; paths and URLs, buckets, cached objects and indexes, kernels."""
