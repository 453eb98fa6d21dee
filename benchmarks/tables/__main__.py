"""Write the tables of all pages anew, and the pictures of claims; print sentences whose numbers differ."""

from benchmarks.tables import claims_picture
from benchmarks.tables.pages import PAGES, ROOT, plain, rewritten, sentences


def main() -> None:
    for page in PAGES:
        old, new = page.read_text(encoding="utf-8"), rewritten(page)
        if old != new:
            page.write_text(new, encoding="utf-8")
            print(f"{page.relative_to(ROOT)} changed")
        for sentence in sentences(page):
            if sentence not in plain(new):
                print(f"{page.relative_to(ROOT)} should say: {sentence}")
    if papers := claims_picture.outdated():
        claims_picture.draw()
        print(f"the pictures of claims of {', '.join(papers)} changed")


if __name__ == "__main__":
    main()
