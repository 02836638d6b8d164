from presilicon.base import derive_seed


def test_streams_are_stable_distinct_and_in_range() -> None:
    assert derive_seed(0, "weights") == 6787856000207422198
    paths = [(seed, name, index) for seed in range(20) for name in ("weights", "data") for index in range(20)]
    seeds = {derive_seed(seed, name, index) for seed, name, index in paths}
    assert len(seeds) == len(paths)
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_a_number_and_its_text_are_different_names() -> None:
    assert derive_seed(0, 1) != derive_seed(0, "1")
