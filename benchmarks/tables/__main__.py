"""Write the marked tables and values of all pages anew, and the pictures of claims."""

from __future__ import annotations

from benchmarks.tables import claims_picture
from benchmarks.tables.pages import PAGES, ROOT, rewritten


def main() -> None:
    for page in PAGES:
        old, new = page.read_text(encoding="utf-8"), rewritten(page)
        if old != new:
            page.write_text(new, encoding="utf-8")
            print(f"{page.relative_to(ROOT)} changed")
    if papers := claims_picture.outdated():
        claims_picture.draw()
        print(f"the pictures of claims of {', '.join(papers)} changed")


if __name__ == "__main__":
    main()
