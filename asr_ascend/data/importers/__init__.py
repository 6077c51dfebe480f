"""What `asr_ascend.data.importing` is made of: readers of corpora, checks, reports."""
