import json
import re
from html.parser import HTMLParser

import msgspec
import pytest

from presilicon.records import Comparison
from presilicon.report import render_page

VOID = {"meta", "link", "br", "img", "hr", "input"}
NASTY = '<script>alert("x")</script>&\'"</title></style>'


class Page(HTMLParser):
    """Checks that tags nest, and collects what is needed."""

    def __init__(self, text):
        super().__init__()
        self.open, self.attributes, self.tags, self.texts, self.wrong = [], [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attributes]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, text):
        self.texts.append((self.open[-1] if self.open else "", text))

    def text(self, tag=None):
        found = [text for inside, text in self.texts if inside not in ("script", "style") and tag in (None, inside)]
        return " ".join("".join(found).replace("\xa0", " ").split())


def data_of(text):
    return json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])


@pytest.fixture(params=["one", "three", "ten", "mixed", "single seed", "nobody", "empty"])
def any_comparison(request, build):
    return {
        "one": lambda: build["comparison"](1),
        "three": lambda: build["comparison"](3),
        "ten": lambda: build["comparison"](10),
        "mixed": build["mixed"],
        "single seed": lambda: build["comparison"](3, seeds=1),
        "nobody": lambda: build["comparison"](2, ceiling=0.9),
        "empty": lambda: Comparison(designs=()),
    }[request.param]()


def test_the_page_is_well_formed_and_self_contained(any_comparison):
    text = render_page(any_comparison)
    page = Page(text)
    assert page.wrong == []
    assert page.open == []
    assert text.startswith("<!DOCTYPE html>")
    assert ("html", "lang", "en") in page.attributes
    assert page.tags.count("h1") == page.tags.count("title") == 1
    links = [value for _, name, value in page.attributes if name in ("src", "href", "srcset", "action")]
    assert links == ["data:,"]
    addresses = set(re.findall(r"https?://[^\s\"'<]*", text))
    assert addresses <= {"http://www.w3.org/2000/svg"}
    assert "@import" not in text
    assert "url(" not in text.replace("url(#plot)", "")
    assert "$" not in re.sub(r"\$\{", "", re.sub(r"`[^`]*`", "", text))
    assert "NaN" not in text
    assert "None" not in page.text().replace("None was recorded.", "")


def test_the_same_comparison_gives_the_same_bytes(comparison):
    assert render_page(comparison) == render_page(comparison)


def test_it_says_what_was_found(comparison):
    page = Page(render_page(comparison))
    assert "has the lowest median time to 97% validation accuracy on digits-cnn" in page.text()
    for text in ("3.83 ms", "[2.77–3.83]", "21.3 µs", "10.6 mm²", "1.23 mJ", "5/5", "5 each"):
        assert text in page.text()


def test_provenance_is_shown_once_where_it_is_shared(comparison):
    text = Page(render_page(comparison)).text()
    assert text.count("f48b3aa6b0c507f1181f82417047b42ae030e101") == 1
    for result in comparison.designs:
        assert text.count(result.provenance["config_hash"]) == 1
    assert "made up for this test" in text


def test_everything_from_outside_is_escaped(comparison):
    evil = msgspec.structs.replace(
        comparison.designs[0],
        name=NASTY,
        workload=NASTY,
        reached=NASTY,
        provenance={NASTY: NASTY, "list": [NASTY], "nested": {NASTY: {NASTY: NASTY}}},
        seeds=tuple(msgspec.structs.replace(seed, ending=NASTY) for seed in comparison.designs[0].seeds),
    )
    text = render_page(Comparison(designs=(evil, comparison.designs[1])))
    page = Page(text)
    assert page.wrong == []
    assert page.tags.count("script") == 2
    assert "<script>alert" not in text
    assert data_of(text)["designs"][0]["name"] == NASTY


def test_the_chart_gets_all_seeds_the_median_and_the_arrival(mixed):
    data = data_of(render_page(mixed))
    assert data["targets"] == [0.97]
    assert [axis["index"] for axis in data["axes"]] == [0, 2, 3]
    design = data["designs"][0]
    assert len(design["seeds"]) == 5
    assert len(design["seeds"][0]["points"][0]) == 4
    assert design["median"][0][0] == 10
    assert design["arrival"] == [170, 0.97, pytest.approx(0.01632), pytest.approx(0.0035904)]
    assert data["designs"][3]["arrival"] == [None, 0.97, None, None]


def test_colours_repeat_only_after_ten_and_lines_differ_too(build):
    designs = data_of(render_page(build["comparison"](10)))["designs"]
    assert [design["color"] for design in designs] == list(range(10))
    assert [design["dashed"] for design in designs] == [False] * 5 + [True] * 5


def test_long_curves_are_thinned_and_keep_their_ends(build):
    long = build["comparison"](1, seeds=1, budget=20_000, ceiling=0.9)
    points = data_of(render_page(long))["designs"][0]["seeds"][0]["points"]
    assert len(points) == 500
    assert (points[0][0], points[-1][0]) == (10, 20_000)


def test_hatched_bars_for_those_who_never_arrive(mixed, comparison):
    assert render_page(mixed).count('class="fill never"') == 4
    assert 'class="fill never"' not in render_page(comparison)
    assert "Hatched" not in render_page(comparison)


def test_what_the_chart_shows_is_also_a_table(comparison):
    text = Page(render_page(comparison)).text()
    assert "The same as numbers" in text
    assert "drawn by a script" in text
    assert "Seed by seed" in text


def test_large_provenance_is_folded_away(comparison):
    config = {f"key{index}": index for index in range(40)}
    big = msgspec.structs.replace(comparison.designs[0], provenance={"config": config, "empty": {}, "none": []})
    text = render_page(Comparison(designs=(big,)))
    assert "<summary>40 entries</summary>" in text
    assert Page(text).wrong == []
