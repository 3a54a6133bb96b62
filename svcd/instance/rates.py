"""How fast this machine does the work of batches: the estimates of dry runs, learned from the batches that end.

A batch reports its work in the units of DEFAULTS, as counted by svcd.index.writer. See docs/tasks-and-batches.md#dry-runs.
"""
from __future__ import annotations

import math
from collections.abc import Mapping

# Seconds for each unit until batches have ended. Measured as CPU with films and with a million documents, on a busy machine.
# read: documents of an upload; compared: stored documents that an upload or deletion names; edited: by a function; characters: of
# the words of new documents; exchanged: of words that are removed, and that replace them; postings: rows of filter values and
# first letters that replaced and deleted documents change, fewer if the documents share them; reanalyzed, reindexed: documents
# whose words a setting makes again, and their characters; parsed: bytes whose values it makes again; located: whose locations it
# reads; wordCounts: whose words it counts for BM25; rewritten: that lose or get `_vectors`; cleared: of a deletion of all.
# rendered: texts for embedders, of documents before and after; embedded: with vectors to write; removed: that lose an embedder.
DEFAULTS = {
    "read": 1.5e-5, "compared": 1e-5, "edited": 3e-5, "added": 5e-5, "replaced": 1e-4, "deleted": 5e-5, "characters": 6.5e-7,
    "exchanged": 3.5e-7, "postings": 7e-5, "reanalyzed": 1e-4, "reindexed": 7e-7, "parsed": 1.8e-7, "located": 2e-5,
    "wordCounts": 3e-4, "rewritten": 3e-5, "cleared": 3e-7, "rendered": 8e-5, "embedded": 2e-5, "removed": 1e-5,
}
# Seconds for each input of an embedder, by whether it calls a service.
INPUT_S = {True: 0.02, False: 5e-4}
OVERHEAD_S = 0.05  # of a batch: claim, commit, end
LEAST_S = 0.2  # shorter batches say little about a rate
# Weight of a new measurement against those before, as an exponent.
_SPEED = 0.7
_LEAST_SHARE = 0.05  # a batch tells nothing about a unit with a smaller share of its time
_MOST = 30.0  # a rate stays within this factor of its default: one stalled disk must not spoil it


class Rates:
    """Seconds for each unit of work. Any thread may call."""

    def __init__(self) -> None:
        self._factors: dict[str, float] = {}  # unit -> its rate here, as a multiple of the default
        self._inputs: dict[str, float] = {}  # index uid -> seconds for each input of its embedders

    def seconds(self, index_uid: str, work: Mapping[str, float], vectors: Mapping[str, Mapping[str, int]],
                slowdown: float = 1.0) -> float:
        """Estimate the duration of a batch. vectors: embedder -> {"made", "calls"}; slowdown: of the machine, now."""
        embedding = sum(counts["made"] * self._inputs.get(index_uid, INPUT_S[counts["calls"] > 0]) for counts in vectors.values())
        return embedding + slowdown * (OVERHEAD_S + sum(self._parts(work).values()))

    def learn(self, index_uid: str, work: Mapping[str, float], seconds: float, inputs: int, embedding_s: float,
              slowdown: float = 1.0) -> None:
        """Correct the rates by a batch that took `seconds`; each by its share of the expected time.

        inputs, embedding_s: texts that were embedded, and the part of the seconds that it took. slowdown: by other work of the
        machine, which the rates leave out.
        """
        if inputs:
            self._inputs[index_uid] = embedding_s / inputs
        seconds = (seconds - embedding_s) / slowdown
        parts = self._parts(work)
        expected = sum(parts.values())
        if seconds < LEAST_S or not expected:
            return
        speeds = {unit: self._factor(unit) * (seconds / expected) ** (_SPEED * part / expected)
                  for unit, part in parts.items() if part > _LEAST_SHARE * expected}
        self._factors |= {unit: min(max(factor, 1 / _MOST), _MOST) for unit, factor in speeds.items()}

    def _factor(self, unit: str) -> float:
        """Return the factor of a unit; of one that no batch has told, the mean of the others."""
        known = self._factors
        if unit in known:
            return known[unit]
        mean: float = math.prod(known.values()) ** (1 / max(len(known), 1))
        return mean

    def _parts(self, work: Mapping[str, float]) -> dict[str, float]:
        return {unit: amount * DEFAULTS[unit] * self._factor(unit) for unit, amount in work.items()
                if amount and unit in DEFAULTS}
