"""Byte-pair encoding, against a naive one that counts all pairs again for each merge."""

import random
from collections import Counter
from itertools import pairwise

import pytest

from presilicon.workloads.tokenizer import BYTES, Tokenizer, _words, learn_merges

TEXT = b"""def the_theme(the, them):
    # the theme of the thesis is there
    return [the for the in them if the == 'theme'] + [10, 20, 30]
"""


def naive_merges(text: bytes, vocabulary: int) -> list[tuple[int, int]]:
    counts = {word: count for word, count in Counter(_words(text)).items() if count > 1}
    words = {word: list(word.encode("latin-1")) for word in counts}
    merges: list[tuple[int, int]] = []
    while BYTES + len(merges) < vocabulary:
        pairs: Counter[tuple[int, int]] = Counter()
        for word, tokens in words.items():
            for pair in pairwise(tokens):
                pairs[pair] += counts[word]
        if not pairs:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        for tokens in words.values():
            position = 0
            while position < len(tokens) - 1:
                if (tokens[position], tokens[position + 1]) == best:
                    tokens[position : position + 2] = [BYTES + len(merges) - 1]
                position += 1
    return merges


@pytest.mark.parametrize("seed", range(4))
def test_the_merges_are_those_of_the_naive_algorithm(seed: int) -> None:
    generator = random.Random(seed)
    words = ["".join(generator.choices("abc", k=generator.randint(1, 9))) for _ in range(60)]
    text = TEXT + " ".join(generator.choices(words, k=800)).encode()
    assert learn_merges([text], 400) == naive_merges(text, 400)
    assert len(learn_merges([text], 400)) > 50


def test_a_text_is_decoded_to_itself_whatever_its_bytes() -> None:
    tokenizer = Tokenizer(learn_merges([TEXT], 300))
    strange = bytes(range(256)) + "naïve £ \r\n\t\x0b".encode() + TEXT
    assert tokenizer.decode(tokenizer.encode(strange)) == strange
    assert len(tokenizer.encode(TEXT)) < len(TEXT)
    assert BYTES < len(tokenizer) <= 300
    assert max(tokenizer.encode(TEXT)) < len(tokenizer)


def test_a_text_without_repetition_has_no_merges() -> None:
    assert learn_merges([b"abc"], 300) == []
    assert Tokenizer([]).encode(b"abc") == [97, 98, 99]
