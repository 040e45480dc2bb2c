"""Random schedules that overlap."""

from hypothesis import strategies as st

from rolltree.control.schedule import Ahead, Bounded, OverSample, Resume, Schedule, StalenessBound, Stop, TopUp

SCHEDULES = st.builds(
    Schedule,
    st.one_of(
        st.builds(Ahead, st.integers(0, 3), st.sampled_from((None, 1.0, 2.0))),
        st.builds(OverSample, st.floats(1, 3)),
        st.builds(Bounded, st.floats(0, 2), st.floats(1, 3)),
        st.builds(TopUp, st.floats(1, 3)),
    ),
    st.builds(
        Stop, st.sampled_from(("created", "finished")), st.sampled_from((None, 1.0, 1.5)), st.booleans(),
        st.integers(0, 2),
    ),
    st.builds(
        Resume, st.sampled_from(("keep", "mask", "turn", "restart")), st.sampled_from(("interrupt", "wait", "run on"))
    ),
    st.builds(StalenessBound, st.one_of(st.none(), st.integers(2, 4)), st.just("drop"), st.booleans()),
)  # fmt: skip
