"""A chart of a report (./ddl report) as an SVG file, for pages such as the README, by hand:

    python tools/report_picture.py report.html "Paired differences at XS" docs/pictures/study-1.svg

The second argument is the beginning of the chart's name, which a screen reader would read. Needs chromium, which draws it.
"""

import re
import subprocess
import sys
from pathlib import Path

page, name, out = sys.argv[1:]
browser = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=4000", "--dump-dom"]
drawn = subprocess.run([*browser, Path(page).resolve().as_uri()], capture_output=True, text=True, check=True).stdout
style = re.search(r"<style>(.*?)</style>", drawn, re.S).group(1)
# The page's script chooses the theme; a picture follows the reader's.
style = re.sub(r':root\[data-theme="dark"\] (\{.*?\n\})', r"@media (prefers-color-scheme: dark) { :root \1 }", style, flags=re.S)


def whole(begin):
    """The drawing that begins there: a chart has drawings inside."""
    depth = 0
    for tag in re.finditer(r"<(/?)svg\b", drawn[begin:]):
        depth += -1 if tag.group(1) else 1
        if depth == 0:
            return drawn[begin : begin + tag.end() + 1]
    sys.exit(f"{page}: a chart does not end")


charts = [whole(m.start()) for m in re.finditer(r'<svg class="chart"', drawn)]
found = [c for c in charts if re.search(r'aria-label="([^"]*)"', c).group(1).startswith(name)]
if not found:
    names = "\n  ".join(re.search(r'aria-label="([^"]*)"', c).group(1) for c in charts)
    sys.exit(f"{page}: expected a chart that begins with {name!r}, found\n  {names}")
head, body = re.match(r"(<svg [^>]*>)(.*)", found[0], re.S).groups()
head = head.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
paper = '<rect width="100%" height="100%" style="fill: var(--paper)"/>'
Path(out).write_text(f"{head}<style>{style}</style>{paper}{body}\n")
print(f"{out}: {len(found[0])} bytes of drawing")
