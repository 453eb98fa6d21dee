"""The report of a sweep or of an offline replay as an HTML page."""

from replaybench.runtime.errors import need

for library in ("jinja2", "plotly"):
    need(library, f"a report needs {library}; pip install 'replaybench[report]'")
