"""Other people's corpora to checked manifests: readers, checks, reports and the command."""
