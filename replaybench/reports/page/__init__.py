"""The report of a run or of an offline replay as an HTML page."""

import importlib.util

from replaybench.runtime.errors import UserError

for library in ("jinja2", "plotly"):
    if importlib.util.find_spec(library) is None:
        raise UserError(f"a report needs {library}; pip install 'replaybench[report]'")
