"""List words that the project decided against, with the preferred term.

    python -m dev.tools.words              in all tracked files
    python -m dev.tools.words PATH...      in these files

dev/words.toml holds the words, and states how a line is exempted.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
WORDS = "dev/words.toml"
TEXTS = {".py", ".md", ".yaml", ".yml", ".toml", ".json", ".html"}


def findings(path: str, text: str, words: Mapping[str, str]) -> Iterator[str]:
    """One line for each occurrence: `path:line: 'word': write ...`.

    Args:
        words: a regular expression of whole words in lower case -> what to write instead.
    """
    lines = text.splitlines()
    text = text.replace("_", " ")  # the words of a name
    # Most files have none of the words. A search that ignores case takes ten times as long.
    if not _pattern("|".join(words)).search(text.lower()):
        return
    for words_of, instead in words.items():
        for match in _pattern(words_of, re.IGNORECASE).finditer(text):
            line = text.count("\n", 0, match.start())
            if "words: allowed" not in lines[line]:
                yield f"{path}:{line + 1}: '{' '.join(match[0].replace('#', ' ').split())}': write: {instead}"


@cache
def _pattern(words: str, flags: int = 0) -> re.Pattern[str]:
    # A phrase may continue on the next line, after its indentation and comment sign.
    return re.compile(rf"\b(?=[^\W\d])(?:{words})\b".replace(" ", r"[\s#]+"), flags)


def main(paths: list[str]) -> int:
    words = tomllib.loads((ROOT / WORDS).read_text())["words"]
    known = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    # A file that was deleted is known to git until the deletion is staged.
    existing = [each for each in known if (ROOT / each).exists()]
    texts = [each for each in paths or existing if Path(each).suffix in TEXTS or Path(each).name in {"Makefile", "run"}]
    unwanted = [line for path in texts if path != WORDS for line in findings(path, (ROOT / path).read_text(), words)]
    print("".join(f"{line}\n" for line in unwanted), end="")
    return 1 if unwanted else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
