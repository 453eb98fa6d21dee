"""The numbers in the documents, made from stored files only: `python -m benchmarks.tables`, or `make tables`.

A page of Markdown marks what is written here, in comments that no reader of the page sees: a table between
`<!-- table: NAME -->` and `<!-- end -->`, a value inside a sentence between `<!--v:NAME-->` and `<!--/-->`. Each module
reads one kind of stored file and returns texts by name.
"""
