"""Utilities: files that are complete or absent, paths, buckets, cached indexes, kernels, checks.

files, locks, full_disk   atomic writes of one file or a set; locks; errors of a full disk
overwriting               which existing files a writer may replace
paths, urls               names of files and objects: existence, versions, checksums
buckets                   requests to s3://, gs://, az:// and http(s)://
object_versions           ETags: an answer belongs to the version that was opened
bucket_ranges, uploads    ids read by ranges; sets of objects written
object_cache              pieces of objects, kept on the local disk
index_cache               indexes built once and mapped by every process
mmap_limit                which files are mapped, and which are read
memory                    available memory, checks for truncation, pausing the garbage collector
njit, compilation         kernels, and the cache of what numba has compiled
item_loops                loops of kernels that NumPy does at once
checks, pydantic_errors   checks of a user's values, and messages about them
extras                    optional packages, and which extra installs them
error_text                errors on one line, URLs without their secrets, plurals
html_table                a small table, for notebooks
types                     the types of most arrays and of JSON
threads                   concurrent calls
signals                   Ctrl-C and SIGTERM, deferred while a process forks
torchrun                  whole numbers in environment variables, such as this process's rank
"""
