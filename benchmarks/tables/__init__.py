"""Tables and numbers of the documents, from stored files only: `python -m benchmarks.tables`, or `make tables`.

Tables are written between `<!-- table: NAME -->` and `<!-- end -->`. Numbers in sentences are written by hand;
`docs/numbers.toml` names each such sentence and its values, and a test compares them. Each module reads one type of
stored file and returns tables and values by name.
"""
