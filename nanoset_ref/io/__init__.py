"""Files that are complete or absent, alone and in sets; paths and URLs, buckets, cached pieces and indexes."""
