"""Size classes of ops."""

from presilicon.scheduling import size_class


def test_classes_have_no_holes() -> None:
    assert [size_class(each) for each in ((1023,), (1024,), (4096,), (4097,), (100, 5000), (1,))] == list("SMMLLS")
