"""Reports of an evaluation: tables, comparisons and pictures."""
