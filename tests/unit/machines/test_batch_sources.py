"""Where cells pull weights: few sources, that hardly ever change while a version spreads."""

from gyre_hpc.machines.batch.sources import MOST, choose_sources


def test_while_a_version_spreads_each_cell_is_told_three_times_at_most():
    for turn in range(64):
        told, known = 0, ()
        holders: dict[str, str] = {}
        for number in range(64):
            holders[f"cell-{number}"] = f"http://{number}"
            chosen = choose_sources(known, holders, "cell-0", turn)
            told, known = told + (chosen != known), chosen
        assert told == 3 and len(set(known)) == MOST and known[0] == "cell-0"


def test_a_source_that_is_gone_is_replaced_and_the_others_stay():
    holders = {f"cell-{number}": "" for number in range(8)}
    known = choose_sources((), holders, "cell-0", 5)
    del holders["cell-0"]
    after = choose_sources(known, holders, "cell-0", 5)
    assert after[:3] == known[1:] and len(set(after)) == MOST and "cell-0" not in after
    assert choose_sources(after, {}, "cell-0", 5) == ()


def test_cells_differ_in_their_sources_beside_the_core():
    holders = {f"cell-{number}": "" for number in range(32)}
    assert len({choose_sources((), holders, "cell-0", turn)[1:] for turn in range(32)}) > 16
