"""Far distractors: tools of other bundles, drawn per episode by seed and similarity band.

Similarity of two worlds is the cosine of TF-IDF vectors over the words of their tools' names,
descriptions and parameters. The paper's bands are thresholds on an embedding model; on word vectors
those thresholds mean nothing, so the bands here are thirds of the ranking: `high` the most similar
third of the candidates, `medium`, `low`. Pure but for the drawing, which depends on the seed alone.
"""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from astra_mcp.bundle import ToolSpec

Band = Literal["any", "high", "medium", "low"]
_WORD = re.compile(r"[^\W\d_]{2,}")


def words(tools: Iterable[ToolSpec]) -> Counter[str]:
    """Word counts of what an agent reads of these tools."""
    counts: Counter[str] = Counter()
    for tool in tools:
        properties: Mapping[str, Mapping[str, object]] = tool.input_schema.get("properties", {})
        described = [str(p.get("description", "")) for p in properties.values()]
        text = " ".join([tool.name, tool.description, *properties, *described])
        counts.update(_WORD.findall(text.replace("_", " ").lower()))
    return counts


def similarities(base: Counter[str], others: Sequence[Counter[str]]) -> list[float]:
    """Cosine of TF-IDF vectors between `base` and each of `others`, 0..1."""
    documents = [base, *others]
    seen = Counter(word for document in documents for word in document)
    idf = {word: math.log((1 + len(documents)) / (1 + n)) + 1 for word, n in seen.items()}
    vectors = [{w: n * idf[w] for w, n in document.items()} for document in documents]
    norms = [math.sqrt(sum(x * x for x in v.values())) or 1.0 for v in vectors]
    head = vectors[0]
    return [
        sum(x * head.get(w, 0.0) for w, x in vector.items()) / (norms[0] * norm)
        for vector, norm in zip(vectors[1:], norms[1:], strict=True)
    ]


def draw(
    own: Sequence[ToolSpec],
    candidates: Sequence[tuple[str, Sequence[ToolSpec]]],
    count: int,
    band: Band,
    seed: str,
) -> list[tuple[str, ToolSpec]]:
    """Choose `count` tools of other worlds.

    Args:
        own: Tools of the episode's world; a candidate of the same name is passed over.
        candidates: (ref, tools) of the other worlds.

    Returns:
        (ref, tool) pairs in the order served; fewer than `count` when the band holds no more.
    """
    vectors = [words(tools) for _, tools in candidates]
    ranked = sorted(
        zip(similarities(words(own), vectors), candidates, strict=True),
        key=lambda pair: (-pair[0], pair[1][0]),
    )
    third = max(1, math.ceil(len(ranked) / 3))
    start = {"any": 0, "high": 0, "medium": third, "low": 2 * third}[band]
    chosen = ranked if band == "any" else ranked[start : start + third]
    pool = [(ref, tool) for _, (ref, tools) in chosen for tool in tools]
    random.Random(f"far:{seed}").shuffle(pool)
    taken = {tool.name for tool in own}
    drawn: list[tuple[str, ToolSpec]] = []
    for ref, tool in pool:
        if len(drawn) < count and tool.name not in taken:
            taken.add(tool.name)
            drawn.append((ref, tool))
    return drawn
