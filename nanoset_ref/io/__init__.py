"""Files that are complete or absent, alone and in sets; locks, checksums, buckets, kept pieces and cached indexes."""
