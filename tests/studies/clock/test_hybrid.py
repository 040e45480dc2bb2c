"""Laws of transfer protocols, of resharding and of the search for a placement."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from studies.clock.checks import hybridflow
from studies.clock.hybrid.flow import MODELS, Batch, Way, cheapest, mapped, others, partitions, placements, seconds
from studies.clock.hybrid.layout import LayoutError, Resharding
from studies.clock.hybrid.protocols import PROTOCOLS, Grid

GRIDS = st.builds(Grid, st.integers(1, 3), st.integers(1, 4), st.integers(1, 4))


@given(GRIDS, st.sampled_from(sorted(PROTOCOLS)), st.lists(st.integers(), max_size=30))
def test_what_ranks_make_of_their_parts_is_what_one_makes_of_the_whole(grid, name, argument):
    assert PROTOCOLS[name].call(grid, lambda part: [3 * x + 1 for x in part], argument) == [3 * x + 1 for x in argument]


@given(GRIDS, st.lists(st.integers(), max_size=30))
def test_stages_of_a_replica_see_the_same_part_and_no_part_is_much_larger(grid, argument):
    shares = PROTOCOLS["3D"].distribute(grid, argument)
    by = {}
    for rank, share in enumerate(shares):
        assert by.setdefault(grid.place(rank)[2], share) == share
    sizes = [len(share) for share in by.values()]
    assert max(sizes) - min(sizes) <= 1


@given(st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 4, 8]), st.data())
def test_strided_groups_hold_nothing_twice(p, t, data):
    p_g = data.draw(st.sampled_from([n for n in (1, 2, 4) if p % n == 0]))
    t_g = data.draw(st.sampled_from([n for n in (1, 2, 4, 8) if t % n == 0]))
    layout = Resharding(p, t, p_g, t_g)
    assert layout.twice(layout.strided) == 0
    assert layout.fetched(layout.strided) <= layout.fetched(layout.contiguous)
    # Every generating replica is whole: each place is taken equally often, and places cover all shards once.
    places = [layout.strided(rank) for rank in range(p * t)]
    assert all(places.count(place) == layout.replicas for place in set(places))
    covered = [part for place in set(places) for part in layout.covered(place)]
    assert sorted(covered) == sorted({divmod(r, t) for r in range(p * t)})


def test_contiguous_groups_hold_some_twice_and_sizes_must_divide():
    assert Resharding(1, 8, 1, 2).twice(Resharding(1, 8, 1, 2).contiguous) > 0
    with pytest.raises(LayoutError, match="1 × 8 cannot become 1 × 3"):
        Resharding(1, 8, 1, 3)


def test_the_search_sees_all_pools_and_is_not_beaten_by_a_fixed_placement():
    assert len(partitions(MODELS)) == 15
    batch = Batch.of(16, 0)
    best, placement, way = mapped(16, batch)
    assert best == seconds(placement, batch, way)
    assert all(sum(devices for _, devices in p) == 16 for p in placements(16))
    for fixed, how in others(16).values():
        assert best <= cheapest([fixed], how, batch)[0] + 1e-9
        assert best <= seconds(fixed, batch, how) + 1e-9


def test_the_longest_rollout_bounds_an_iteration():
    batch = Batch(tokens=1000, longest=1000, rollouts=1)
    assert seconds(((MODELS, 8),), batch, Way(generate=1)) > 1000 * 0.02


def test_what_is_searched_is_held_against_the_fastest_fixed_way():
    batch = Batch.of(64, 3)
    fixed = [60 / cheapest([placement], way, batch)[0] for placement, way in others(64).values() if way.generate == 1]
    assert hybridflow(3).baseline == pytest.approx(max(fixed), rel=1e-3)
