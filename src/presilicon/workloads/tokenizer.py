"""Byte-pair encoding (Gage, 1994; Sennrich et al., 2016) in plain Python, the same for the same text everywhere."""

from __future__ import annotations

import heapq
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import pairwise

BYTES = 256
_WORDS = re.compile(r"\n[ \t]*| ?[A-Za-z_]+|[0-9]| ?[^\sA-Za-z0-9_]+|\s")
"""Pieces that no token crosses: a line break with its indentation, a word, a digit, a run of other characters."""

Pair = tuple[int, int]


class Tokenizer:
    """Encodes text as token numbers: bytes first, then merged pairs in the order in which they were learned."""

    def __init__(self, merges: Iterable[Pair]) -> None:
        self._ranks = {pair: BYTES + rank for rank, pair in enumerate(merges)}
        self._words: dict[str, list[int]] = {}
        self._bytes = [bytes([number]) for number in range(BYTES)]
        for left, right in self._ranks:
            self._bytes.append(self._bytes[left] + self._bytes[right])

    def __len__(self) -> int:
        return len(self._bytes)

    def encode(self, text: bytes) -> list[int]:
        """The tokens of a text."""
        tokens: list[int] = []
        for word in _words(text):
            known = self._words.get(word)
            if known is None:
                known = self._words[word] = self._encode_word(list(word.encode("latin-1")))
            tokens += known
        return tokens

    def decode(self, tokens: Iterable[int]) -> bytes:
        """The text of tokens."""
        return b"".join(self._bytes[token] for token in tokens)

    def _encode_word(self, word: list[int]) -> list[int]:
        """The earliest learned pair is merged first."""
        while len(word) > 1:
            best = min(pairwise(word), key=lambda pair: self._ranks.get(pair, len(self)))
            if best not in self._ranks:
                break
            word = _merge(word, best, self._ranks[best])
        return word


def learn_merges(texts: Iterable[bytes], vocabulary: int) -> list[Pair]:
    """The pairs to merge, most frequent first, for a vocabulary of this size; equal counts in the order of the pair.

    >>> tokenizer = Tokenizer(learn_merges([b"do do do"], 258))
    >>> [tokenizer.decode([token]) for token in tokenizer.encode(b" do dot")]
    [b' do', b' do', b't']
    """
    counts = Counter(word for text in texts for word in _words(text))
    # A word that occurs once has no say: there are many, and they would take most of the time.
    words = [list(word.encode("latin-1")) for word, count in counts.items() if count > 1]
    weights = [count for count in counts.values() if count > 1]
    pairs: Counter[Pair] = Counter()
    places: defaultdict[Pair, set[int]] = defaultdict(set)
    for number, word in enumerate(words):
        for pair in pairwise(word):
            pairs[pair] += weights[number]
            places[pair].add(number)
    queue = [(-count, pair) for pair, count in pairs.items()]
    heapq.heapify(queue)
    merges: list[Pair] = []
    while queue and BYTES + len(merges) < vocabulary:
        negative, best = heapq.heappop(queue)
        if negative == 0:
            break
        if -negative != pairs[best]:
            continue  # its count has changed since, and the queue has the new one too
        token = BYTES + len(merges)
        merges.append(best)
        changes: Counter[Pair] = Counter()
        for number in places.pop(best):
            weight, before = weights[number], words[number]
            words[number] = after = _merge(before, best, token)
            for pair in pairwise(before):
                changes[pair] -= weight
            for pair in pairwise(after):
                changes[pair] += weight
                if token in pair:
                    places[pair].add(number)
        for pair, change in changes.items():
            if change:
                pairs[pair] += change
                heapq.heappush(queue, (-pairs[pair], pair))
        del pairs[best]
    return merges


def _words(text: bytes) -> list[str]:
    # As latin-1, because every byte is a character then.
    return _WORDS.findall(text.decode("latin-1"))


def _merge(word: list[int], pair: Pair, token: int) -> list[int]:
    left, right = pair
    merged: list[int] = []
    for number in word:
        if number == right and merged and merged[-1] == left:
            merged[-1] = token
        else:
            merged.append(number)
    return merged
