"""What the core is in Python: immutable values that validate, compare, print and pickle."""

import copy
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import dreamddp
from dreamddp import (
    Event,
    EventKind,
    LastRead,
    LastReadKind,
    Layer,
    Link,
    Op,
    OpMode,
    Plan,
    Profile,
    Quantity,
    Segment,
    Span,
    SpanKind,
)
from dreamddp import _core as core

BACKWARD_B = Event(0, EventKind.after_backward, 1)
BACKWARD_A = Event(0, EventKind.after_backward, 0)
STEP = Event(0, EventKind.before_step)


def two_layers() -> Profile:
    return Profile(
        [
            Layer("a", forward_seconds=1e-3, backward_seconds=2e-3, num_bytes=4000, transfer_seconds=4e-3),
            Layer("b", forward_seconds=1e-3, backward_seconds=2e-3, num_bytes=2000, transfer_seconds=2e-3),
        ],
        step_seconds=1e-3,
    )


def every_iteration() -> Plan:
    return Plan(
        planner="by hand",
        period=1,
        layers=["a", "b"],
        ops=[
            Op([Segment(1)], launch=BACKWARD_B, deadline=STEP),
            Op([Segment(0, 0, 0.5), Segment(0, 0.5, 1)], launch=BACKWARD_A, deadline=STEP),
        ],
    )


def test_importing_needs_no_torch() -> None:
    code = "import sys, dreamddp, dreamddp.cli; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="no attribute 'DreamDPP'"):
        dreamddp.DreamDPP  # noqa: B018


def test_what_trains_is_found_on_first_use() -> None:
    from dreamddp.engine import DreamDDP
    from dreamddp.sync_stats import SyncStats

    assert dreamddp.DreamDDP is DreamDDP
    assert dreamddp.SyncStats is SyncStats


def test_every_public_name_is_listed() -> None:
    assert set(dreamddp.__all__) <= set(dir(dreamddp))


def test_sync_error_is_a_runtime_error_named_after_the_package() -> None:
    assert issubclass(dreamddp.SyncError, RuntimeError)
    error = pickle.loads(pickle.dumps(dreamddp.SyncError("rank 1 is late")))
    assert type(error) is dreamddp.SyncError
    assert str(error) == "rank 1 is late"


def test_profile_fields() -> None:
    profile = two_layers()
    assert [layer.name for layer in profile.layers] == ["a", "b"]
    assert profile.layers[0].num_bytes == 4000
    assert profile.layers[0].last_read == LastRead(LastReadKind.own_backward)
    assert profile.backward_order == ()
    assert core.compute_seconds(profile) == pytest.approx(7e-3, rel=1e-12)
    assert repr(profile).startswith("<Profile of 2 layers, compute 0.007")


def test_unknown_sizes_are_none() -> None:
    layer = Layer("a")
    assert layer.num_bytes is None
    assert layer.transfer_seconds is None


def test_values_are_immutable() -> None:
    for value, field in [
        (two_layers(), "step_seconds"),
        (two_layers().layers[0], "name"),
        (Link(), "workers"),
        (every_iteration(), "period"),
        (Segment(0), "begin"),
    ]:
        with pytest.raises(AttributeError):
            setattr(value, field, getattr(value, field))


@pytest.mark.parametrize("value", [two_layers(), every_iteration()], ids=["profile", "plan"])
def test_pickling_and_copying_keep_all(value: Profile | Plan) -> None:
    assert pickle.loads(pickle.dumps(value)) == value
    assert copy.deepcopy(value) == value
    assert value.from_json(value.to_json()) == value


def test_saved_files_load_equal(tmp_path: Path) -> None:
    two_layers().save(tmp_path / "profile.json")
    every_iteration().save(str(tmp_path / "plan.json"))
    assert Profile.load(str(tmp_path / "profile.json")) == two_layers()
    assert Plan.load(tmp_path / "plan.json") == every_iteration()


def test_reprs_read_like_constructors() -> None:
    assert repr(Segment(3, 0, 0.5)) == "Segment(layer=3, begin=0.0, end=0.5)"
    assert repr(Link(workers=4)) == (
        "Link(bandwidth_bytes_per_second=None, latency_seconds=0.0, workers=4, in_flight=1)"
    )
    assert repr(every_iteration()) == "<Plan by 'by hand', period 1, 2 ops>"
    assert "name='a'" in repr(two_layers().layers[0])
    assert "begin_seconds=0.0" in repr(Span(SpanKind.link, "op 0", begin_seconds=0, end_seconds=1))
    assert "iteration=0" in repr(every_iteration().ops[0])


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Profile([]), "layers"),
        (lambda: Profile([Layer("a", forward_seconds=-1)]), "'a'.*forward"),
        (lambda: Profile([Layer("a", backward_seconds=float("nan"))]), "'a'.*backward"),
        (lambda: Profile([Layer("a"), Layer("a")]), "'a'"),
        (lambda: Profile([Layer("a")], step_seconds=float("inf")), "step"),
        (lambda: Profile([Layer("a")], backward_order=[1]), "backward_order"),
        (lambda: Link(bandwidth_bytes_per_second=0), "bandwidth"),
        (lambda: Link(latency_seconds=-1), "latency"),
        (lambda: Link(workers=0), "workers"),
        (lambda: Link(in_flight=0), "in.flight"),
        (lambda: Plan(planner="p", period=0, layers=["a"], ops=[]), "period"),
        (
            lambda: Plan(
                planner="p", period=1, layers=["a"], ops=[Op([Segment(1)], launch=BACKWARD_A, deadline=STEP)]
            ),
            r"ops\[0\]: layer: got 1; expected an index below the number of layers, 1",
        ),
        (
            lambda: Plan(
                planner="p",
                period=1,
                layers=["a"],
                ops=[Op([Segment(0, 0, 2)], launch=BACKWARD_A, deadline=STEP)],
            ),
            "end",
        ),
        (lambda: core.make_plan("fastest", two_layers(), Link()), "fastest"),
        (lambda: core.make_plan("balanced", two_layers(), Link(), period=0), "period"),
        (lambda: core.parse_seconds("3", "--latency"), "--latency"),
        (lambda: core.parse_bytes_per_second("0MB/s", "--bandwidth"), "--bandwidth"),
    ],
)
def test_bad_input_is_a_value_error_that_names_the_field(build: object, message: str) -> None:
    assert callable(build)
    with pytest.raises(ValueError, match=message):
        build()


def test_read_errors_name_the_path(tmp_path: Path) -> None:
    missing = tmp_path / "missing.json"
    with pytest.raises(FileNotFoundError) as missing_info:
        Profile.load(missing)
    assert missing_info.value.filename == str(missing)
    with pytest.raises(IsADirectoryError) as folder_info:
        Plan.load(tmp_path)
    assert folder_info.value.filename == str(tmp_path)
    latin = tmp_path / "latin.json"
    latin.write_bytes(b'{"name": "caf\xe9"}')
    with pytest.raises(ValueError, match=r"latin\.json: not a UTF-8 text file \(first bad byte at 13\)"):
        core.read_text_file(latin)
    broken = tmp_path / "broken.json"
    broken.write_text('{"format": ', encoding="utf-8")
    with pytest.raises(ValueError, match=r"broken\.json: "):
        Profile.load(broken)


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    path.write_text(two_layers().to_json(), encoding="utf-8-sig")
    assert Profile.load(path) == two_layers()


def test_nan_is_rejected_or_replaced_with_a_warning() -> None:
    text = (
        '{"format": "dreamddp-profile/1", "time_unit": "ms", '
        '"layers": [{"name": "a", "forward": NaN, "backward": 2}]}'
    )
    with pytest.raises(ValueError, match=r"'a'.*forward"):
        Profile.from_json(text)
    with pytest.warns(UserWarning, match=r"'a'.*forward"):
        profile = Profile.from_json(text, nan_as_zero=True)
    assert profile.layers[0].forward_seconds == 0


def test_simulation_of_a_plan_by_hand() -> None:
    plan, profile = every_iteration(), two_layers()
    core.validate_plan(plan, profile)
    simulation = core.simulate(plan, profile, Link())
    assert simulation.iteration_seconds == pytest.approx(11e-3, rel=1e-9)
    assert simulation.exposed_seconds == pytest.approx(4e-3, rel=1e-9)
    assert simulation.bytes_per_iteration == 6000
    assert "iteration_seconds=0.011" in repr(simulation)


def test_timeline_spans_add_up() -> None:
    spans = core.simulate_timeline(every_iteration(), two_layers(), Link())
    seconds = {
        kind: sum(span.end_seconds - span.begin_seconds for span in spans if span.kind is kind)
        for kind in SpanKind
    }
    assert seconds[SpanKind.link] == pytest.approx(6e-3, rel=1e-9)
    assert seconds[SpanKind.wait] == pytest.approx(4e-3, rel=1e-9)
    assert seconds[SpanKind.step] == pytest.approx(1e-3, rel=1e-9)
    assert '"traceEvents"' in core.to_chrome_trace(spans)


def test_modes_and_bounds() -> None:
    profile = two_layers()
    after_step = Event(0, EventKind.after_step)
    held = Op([Segment(0), Segment(1)], launch=after_step, deadline=Event(1, EventKind.before_step))
    carried = Op([Segment(0), Segment(1)], launch=after_step, deadline=Event(2, EventKind.before_step))
    assert core.op_mode(every_iteration().ops[0], profile) is OpMode.in_place
    assert core.op_mode(held, profile) is OpMode.held
    assert core.op_mode(carried, profile) is OpMode.carried
    assert carried.num_steps_crossed == 1
    plan = Plan(planner="held", period=1, layers=["a", "b"], ops=[held])
    assert core.booked_bytes(plan, profile) == 6000
    assert plan.ops[0].quantity is Quantity.parameters
    transfer = core.layer_transfer_seconds(profile, Link())
    assert transfer == [4e-3, 2e-3]
    assert core.bound_seconds(profile, transfer, 1) == pytest.approx(11e-3, rel=1e-9)
    assert core.bound_seconds(profile, transfer, 1, mode=OpMode.held) == pytest.approx(7e-3, rel=1e-9)


def test_layers_that_the_profile_lacks_are_refused() -> None:
    plan, small = every_iteration(), Profile([Layer("a", num_bytes=4000)])
    message = r"layer: got 1; expected an index below the number of layers, 1\. Count"
    with pytest.raises(ValueError, match=message):
        core.op_mode(plan.ops[0], small)
    with pytest.raises(ValueError, match=message):
        core.booked_bytes(plan, small)
    with pytest.raises(ValueError, match="transfer_seconds: got 2 entries"):
        core.bound_seconds(small, [1.0, 1.0], 1)


def test_rejections_read_alike() -> None:
    with pytest.raises(ValueError, match=r"^--lr: got -1; expected a rate above 0\. Give 0\.1\.$"):
        core.reject("--lr", -1, "a rate above 0", "Give 0.1")


def test_the_version_is_that_of_the_project() -> None:
    project = Path(__file__).parents[2] / "pyproject.toml"
    assert f'\nversion = "{dreamddp.__version__}"\n' in project.read_text()


def test_ring_time_of_a_layer() -> None:
    link = Link(bandwidth_bytes_per_second=1e6, workers=4)
    # 2 * 3/4 * 4000 bytes at 1 MB/s
    assert core.layer_transfer_seconds(two_layers(), link) == pytest.approx([6e-3, 3e-3], rel=1e-12)


def test_planners_have_names_and_summaries() -> None:
    names = [name for name, _ in core.planners()]
    assert "balanced" in names
    assert len(set(names)) == len(names)
    assert all(summary for _, summary in core.planners())


def test_formats_and_parses_units() -> None:
    assert core.parse_seconds("0.2ms", "--latency") == 0.2e-3
    assert core.parse_num_bytes("8MiB", "--staging") == 8 << 20
    assert core.parse_bytes_per_second("100Mbit/s", "--bandwidth") == 12.5e6
    assert core.format_seconds(1.25e-3) == "1.25 ms"
    assert core.format_num_bytes(8 << 20) == "8.0 MiB"
    assert core.format_bytes_per_second(12.5e6) == "12.5 MB/s"
