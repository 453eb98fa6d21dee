"""Published claims on experience selection, as data, and verdicts on them by runs."""
