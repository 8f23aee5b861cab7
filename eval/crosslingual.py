"""Two multilingual STS sets, as MTEB (arXiv 2210.07316) publishes them on the hub: files, and pairs per language.

Sources: names and language pairs from MTEB's tasks STS17 and STS22 (mteb/tasks/STS), numbers of pairs from
its descriptive_stats. The sets are SemEval-2017 task 1, with translations and KorSTS's test set, and SemEval-2022 task
8, news articles.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Crosslingual:
    """One set.

    Attributes:
        name: MTEB's name.
        repo: the dataset repository.
        file: the path in the repository; with `{}` one file per language pair, otherwise one file for all.
        pairs: language or language pair -> number of scored pairs.
        scores: the lowest and the highest score.
    """

    name: str
    repo: str
    file: str
    pairs: dict[str, int]
    scores: tuple[float, float]

    @property
    def files(self) -> list[str]:
        """Paths in the repository; below the data folder they are prefixed with its name."""
        return list(dict.fromkeys(self.file.format(language) for language in self.pairs))


SETS = (
    Crosslingual(
        "STS17",
        "mteb/sts17-crosslingual-sts",
        "test/{}.jsonl.gz",
        {"ko-ko": 2846} | dict.fromkeys("ar-ar en-ar en-de en-en en-tr es-en es-es fr-en it-en nl-en".split(), 250),
        (0, 5),
    ),
    Crosslingual(
        "STS22",
        "mteb/sts22-crosslingual-sts",
        "data/test.jsonl.gz",
        {
            "en": 197,
            "de": 514,
            "es": 205,
            "pl": 187,
            "tr": 211,
            "ar": 195,
            "ru": 271,
            "zh": 656,
            "fr": 104,
            "de-en": 160,
            "es-en": 374,
            "it": 408,
            "pl-en": 49,
            "zh-en": 168,
            "es-it": 218,
            "de-fr": 75,
            "de-pl": 28,
            "fr-pl": 8,
        },
        (1, 4),
    ),
)
