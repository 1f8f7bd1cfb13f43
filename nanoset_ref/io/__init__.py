"""Files that are complete or absent; paths, buckets, cached objects and indexes, kernels."""
