"""What is known of real failures, by which answers about optimizations and releases are judged."""

from __future__ import annotations

from benchmarks.guilty import EXPECTED, RELEASES


def test_the_nearest_good_releases_of_what_is_known() -> None:
    island, open_ended = EXPECTED["inception_pad_avgpool"], EXPECTED["bert_skipln_gamma3d"]
    assert [one for one, said in island.history().items() if said == "broken"] == ["1.20.1"]
    assert island.neighbors(island.history()) == ("1.19.2", "1.21.1")
    assert open_ended.neighbors(open_ended.history()) == (None, "1.24.4")
    unknown = {**island.history(), "1.19.2": "not known"}
    assert island.neighbors(unknown) == ("1.18.1", "1.21.1")


def test_each_is_broken_in_the_release_from_which_the_search_starts() -> None:
    assert len(RELEASES) == 16 and all(one.history()[one.bad] == "broken" for one in EXPECTED.values())
