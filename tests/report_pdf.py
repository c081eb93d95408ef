"""``make report``: the technical report as a PDF, docs/report.pdf."""

from __future__ import annotations

import re
from pathlib import Path
from tempfile import NamedTemporaryFile

from chromium import browser, run
from markdown import markdown

from selverify.errors import ParamsError

SOURCE, TARGET = Path("docs/report.md"), Path("docs/report.pdf")
PAGES = 8
STYLE = """
@page { size: A4; margin: 17mm 18mm 18mm; }
body { font: 9.2pt/1.34 "Liberation Serif", "DejaVu Serif", serif; text-align: justify;
  hyphens: auto; }
h1 { font-size: 16pt; line-height: 1.2; margin: 0 0 6pt; text-align: left; }
h2 { font-size: 11.5pt; margin: 10pt 0 3pt; break-after: avoid; }
p, ul { margin: 0 0 5pt; } ul { padding-left: 14pt; } li { margin: 0 0 2pt; }
table { border-collapse: collapse; font-size: 7.8pt; line-height: 1.2; margin: 4pt auto 7pt;
  text-align: left; }
td, th { padding: 1.2pt 5pt; border-bottom: .3pt solid #999; vertical-align: top; }
td[style*="right"] { white-space: nowrap; }
thead th { border-bottom: .8pt solid #000; } table { break-inside: avoid; }
img { display: block; max-width: 100%; max-height: 62mm; margin: 3pt auto; break-inside: avoid; }
a { color: inherit; text-decoration: none; } code { font-size: 8.2pt; }
"""


def main() -> None:
    """Write the PDF.

    Raises:
        ParamsError: there is no Chromium, or the report is longer than it may be.
    """
    body = markdown(SOURCE.read_text(encoding="utf-8"), extensions=["tables"])
    page = f"<!doctype html><html lang=en><meta charset=utf-8><style>{STYLE}</style>{body}"
    # Beside the source, where its figures are found.
    with NamedTemporaryFile("w", suffix=".html", dir=SOURCE.parent, encoding="utf-8") as made:
        made.write(page)
        made.flush()
        with browser() as opened:
            shown = opened.new_page()
            shown.goto(Path(made.name).resolve().as_uri())
            shown.pdf(
                path=TARGET,
                prefer_css_page_size=True,
                display_header_footer=True,
                header_template="<span></span>",
                footer_template=(
                    '<div style="font-size:7pt;width:100%;text-align:center">'
                    '<span class="pageNumber"></span></div>'
                ),
            )
    pages = len(re.findall(rb"/Type\s*/Page\b", TARGET.read_bytes()))
    if pages > PAGES:
        raise ParamsError(f"{TARGET}: {pages} pages, expected at most {PAGES}")
    print(f"{TARGET}: {pages} pages")


if __name__ == "__main__":
    run(main)
