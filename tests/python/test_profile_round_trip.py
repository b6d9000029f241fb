"""Any valid profile survives its file format unchanged."""

import pickle

from hypothesis import given, settings
from hypothesis import strategies as st

from dreamddp import LastRead, LastReadKind, Layer, Profile

seconds = st.floats(min_value=0, max_value=1e9, allow_nan=False, allow_infinity=False)
# U+007F is the one character that a profile file cannot hold.
names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x7f"), min_size=1, max_size=20)


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    layer_names = draw(st.lists(names, min_size=1, max_size=8, unique=True))
    layers = [
        Layer(
            name,
            forward_seconds=draw(seconds),
            backward_seconds=draw(seconds),
            num_bytes=draw(st.none() | st.integers(0, 10**12)),
            transfer_seconds=draw(st.none() | seconds),
            last_read=LastRead(draw(st.sampled_from([LastReadKind.own_backward, LastReadKind.forward]))),
        )
        for name in layer_names
    ]
    order = draw(st.just([]) | st.permutations(range(len(layers))))
    return Profile(layers, step_seconds=draw(seconds), backward_order=order)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(profiles())
def test_round_trip(profile: Profile) -> None:
    assert Profile.from_json(profile.to_json()) == profile
    assert pickle.loads(pickle.dumps(profile)) == profile


def test_a_tied_layer_round_trips() -> None:
    tied = Layer("wte", num_bytes=100, last_read=LastRead(LastReadKind.other_backward, 1))
    profile = Profile([tied, Layer("lm_head", num_bytes=0, backward_seconds=1)])
    assert Profile.from_json(profile.to_json()) == profile
    assert '"lm_head"' in profile.to_json()
