#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "core/expect_rejected.h"
#include "core/random_plans.h"
#include "dreamddp/plan.h"

namespace dreamddp {
namespace {

using testing::expect_rejected;

constexpr EventKind after_backward = EventKind::after_backward;
constexpr EventKind after_step = EventKind::after_step;
constexpr EventKind before_forward = EventKind::before_forward;
constexpr EventKind before_step = EventKind::before_step;

Profile two_layers() { return {{{"a", 1, 1, 10, 1.0, {}}, {"b", 1, 1, 10, 1.0, {}}}, 1, {}}; }

Op averaging(std::vector<Segment> segments, const Event& launch, const Event& deadline) {
  return {Quantity::parameters, std::move(segments), launch, deadline};
}

Plan plan_of(std::int64_t period, std::vector<Op> ops) {
  return {"test", period, {"a", "b"}, std::move(ops)};
}

Plan empty_plan(const Profile& profile, std::int64_t period) {
  Plan plan{"test", period, {}, {}};
  for (const Layer& layer : profile.layers) {
    plan.layers.push_back(layer.name);
  }
  return plan;
}

void expect_valid(const Plan& plan, const Profile& profile = two_layers()) {
  EXPECT_NO_THROW(validate(plan, profile));
}

void expect_invalid(const Plan& plan, std::initializer_list<std::string> parts,
                    const Profile& profile = two_layers()) {
  expect_rejected([&] { validate(plan, profile); }, parts);
}

TEST(Coverage, RejectsLayersThatAreNeverAveraged) {
  expect_invalid(plan_of(3, {averaging({{1}}, {0, after_backward, 1}, {0, before_step, 0})}),
                 {"ops: got no average of a;", "in a period of 3"});
  expect_invalid(plan_of(1, {}), {"ops: got no average of a, b;"});
}

TEST(Coverage, RejectsGapsOfAnySize) {
  const auto with_parts = [](double first_end, double second_begin) {
    return plan_of(2, {averaging({{1}}, {0, after_backward, 1}, {0, before_step, 0}),
                       averaging({{0, 0, first_end}}, {0, after_backward, 0}, {0, before_step, 0}),
                       averaging({{0, second_begin, 1}}, {1, after_backward, 0}, {1, before_step, 0})});
  };
  expect_valid(with_parts(1.0 / 3, 1.0 / 3));
  expect_valid(with_parts(0.5, 0.25));
  expect_invalid(with_parts(0.25, 0.5), {"no average of a[0.25:0.5]"});
  expect_invalid(with_parts(0.3, 0.1 + 0.2), {"no average of a[0.3:0.30000000000000004]"});
}

TEST(Coverage, RejectsAMissingEndOrBegin) {
  const auto with_part = [](double begin, double end) {
    return plan_of(1, {averaging({{1}}, {0, after_backward, 1}, {0, before_step, 0}),
                       averaging({{0, begin, end}}, {0, after_backward, 0}, {0, before_step, 0})});
  };
  expect_invalid(with_part(0, 0.75), {"no average of a[0.75:1]"});
  expect_invalid(with_part(0.25, 1), {"no average of a[0:0.25]"});
}

TEST(Coverage, DoesNotAskForLayersWithoutParameters) {
  Profile profile = two_layers();
  profile.layers[0].num_bytes = 0;
  expect_valid(plan_of(1, {averaging({{1}}, {0, after_backward, 1}, {0, before_step, 0})}), profile);
  profile.layers[0].num_bytes = std::nullopt;
  expect_invalid(plan_of(1, {averaging({{1}}, {0, after_backward, 1}, {0, before_step, 0})}),
                 {"no average of a"}, profile);
}

TEST(Coverage, GradientsCountWhenAveragedInEveryIteration) {
  const auto gradients_in = [](std::vector<std::int64_t> iterations) {
    Plan plan = plan_of(2, {});
    for (const std::int64_t i : iterations) {
      plan.ops.push_back({Quantity::gradients, {{0}, {1}}, {i, after_backward, 0}, {i, before_step, 0}});
    }
    return plan;
  };
  expect_valid(gradients_in({0, 1}));
  expect_invalid(gradients_in({1}), {"no average of a, b", "its gradients in every iteration"});
}

TEST(Coverage, ListsFourLayersAtMost) {
  Profile profile;
  for (int l = 0; l < 20; ++l) {
    profile.layers.push_back({"h." + std::to_string(l), 1, 1, 4, 1.0, {}});
  }
  expect_invalid(empty_plan(profile, 1), {"no average of h.0, h.1, h.2, h.3 and 16 more layers;"}, profile);
}

TEST(Overlap, RejectsTwoOpsInFlightOnOneCoordinate) {
  expect_invalid(plan_of(1, {averaging({{1}, {0, 0, 0.5}}, {0, after_backward, 0}, {0, before_step, 0}),
                             averaging({{0, 0.4, 1}}, {0, after_backward, 0}, {0, before_step, 0})}),
                 {"ops[1] (a[0.4:1])", "ops[0] (b, a[0:0.5]) has a part of it in flight",
                  "from after backward 'a' of iteration 0 to before step of iteration 0"});
}

TEST(Overlap, RejectsACoordinateTwiceInOneOp) {
  expect_invalid(
      plan_of(1, {averaging({{0}, {1}, {0, 0.5, 0.75}}, {0, after_backward, 0}, {0, before_step, 0})}),
      {"ops[0] (a, b, a[0.5:0.75]): segments", "every coordinate once"});
}

TEST(Overlap, AcceptsWindowsThatMeetAtTheStep) {
  expect_valid(plan_of(1, {averaging({{0}, {1}}, {0, after_backward, 0}, {0, before_step, 0}),
                           averaging({{0}, {1}}, {0, after_step, 0}, {1, before_forward, 0})}));
}

TEST(Overlap, AcceptsOneLayerInManyIterations) {
  expect_valid(plan_of(3, {averaging({{0}, {1}}, {0, after_backward, 0}, {0, before_step, 0}),
                           averaging({{0}, {1}}, {1, after_backward, 0}, {1, before_step, 0}),
                           averaging({{0}, {1}}, {1, after_step, 0}, {2, before_step, 0})}));
}

TEST(Overlap, IsFoundAcrossTheEndOfThePeriod) {
  // Held through iteration 2, which is iteration 0 of the next period.
  expect_invalid(plan_of(2, {averaging({{0}, {1}}, {0, after_backward, 0}, {0, before_step, 0}),
                             averaging({{1}}, {1, after_step, 0}, {2, before_step, 0})}),
                 {"'b'", "ops[0] (a, b)", "ops[1] (b)", "where the period of 2 repeats"});
}

TEST(Overlap, LetsOnlyACarriedOpMeetItsOwnNextLaunch) {
  const Op carried = averaging({{0}, {1}}, {0, after_step, 0}, {2, before_step, 0});
  expect_valid(plan_of(1, {carried}));
  expect_invalid(plan_of(1, {averaging({{0}}, {0, after_backward, 0}, {0, before_step, 0}), carried}),
                 {"ops[1] (a, b)", "ops[0] (a)"});
}

/// What validate() says of coordinates, found by looking at every coordinate and event one by one.
///
/// Segments lie on a grid of quarters. The events of an iteration are listed here anew, in words of the
/// design, so that the order of events is checked as well.
class Ledger {
 public:
  Ledger(const Plan& plan, const Profile& profile) : plan_(plan), profile_(profile) {
    for (std::size_t l = 0; l < profile.layers.size(); ++l) {
      events_.push_back({before_forward, l});
      events_.push_back({EventKind::after_forward, l});
    }
    for (const std::size_t l : backward_sequence(profile)) {
      events_.push_back({after_backward, l});
    }
    events_.push_back({before_step, 0});
    events_.push_back({after_step, 0});
  }

  bool has_overlap() const {
    std::map<std::tuple<std::size_t, int, std::int64_t>, std::size_t> holder;  // of a coordinate at a moment
    const auto moments = static_cast<std::int64_t>(events_.size()) * plan_.period;
    for (std::size_t i = 0; i < plan_.ops.size(); ++i) {
      std::set<std::pair<std::size_t, int>> carried;
      for (const Segment& segment : plan_.ops[i].segments) {
        for (int quarter = 0; quarter < 4; ++quarter) {
          if (segment.begin * 4 > quarter || segment.end * 4 < quarter + 1) {
            continue;
          }
          if (!carried.emplace(segment.layer, quarter).second) {
            return true;
          }
          for (std::int64_t t = moment(plan_.ops[i].launch); t < moment(plan_.ops[i].deadline); ++t) {
            if (holder.emplace(std::tuple{segment.layer, quarter, t % moments}, i).first->second != i) {
              return true;
            }
          }
        }
      }
    }
    return false;
  }

  bool has_gap() const {
    for (std::size_t l = 0; l < profile_.layers.size(); ++l) {
      for (int quarter = 0; quarter < 4 && profile_.layers[l].num_bytes != 0; ++quarter) {
        std::set<std::int64_t> gradients_in;
        bool is_averaged = false;
        for (const Op& op : plan_.ops) {
          for (const Segment& segment : op.segments) {
            if (segment.layer == l && segment.begin * 4 <= quarter && segment.end * 4 >= quarter + 1) {
              if (op.quantity == Quantity::parameters) {
                is_averaged = true;
              } else {
                gradients_in.insert(op.launch.iteration);
              }
            }
          }
        }
        if (!is_averaged && static_cast<std::int64_t>(gradients_in.size()) < plan_.period) {
          return true;
        }
      }
    }
    return false;
  }

 private:
  std::int64_t moment(const Event& event) const {
    std::size_t i = 0;
    while (events_[i].first != event.kind || events_[i].second != event.layer) {
      ++i;
    }
    return event.iteration * static_cast<std::int64_t>(events_.size()) + static_cast<std::int64_t>(i);
  }

  const Plan& plan_;
  const Profile& profile_;
  std::vector<std::pair<EventKind, std::size_t>> events_;
};

/// An op of parameters, valid for itself: in place, held or carried over at most a period of steps.
Op random_op(testing::Random& random, const EventOrder& order, std::int64_t period, const Segment& segment) {
  const std::int64_t i = testing::random_integer(random, 0, period - 1);
  const std::size_t l = segment.layer;
  Op op{Quantity::parameters, {segment}, {}, {}};
  switch (testing::random_integer(random, 0, 3)) {
    case 0:  // backward window
      op.launch = order.last_read(l, i);
      op.deadline = {i, EventKind::before_step, 0};
      break;
    case 1:  // forward window
      op.launch = {i, EventKind::after_step, 0};
      op.deadline = {i + 1, EventKind::before_forward, l};
      break;
    case 2:  // held
      op.launch = {i, EventKind::after_step, 0};
      op.deadline = {i + 1, EventKind::before_step, 0};
      break;
    default: {  // carried
      const std::int64_t delay = testing::random_integer(random, 1, period);
      op.launch = {i, EventKind::after_backward, l};
      op.deadline = {i + delay, EventKind::before_step, 0};
      if (testing::random_integer(random, 0, 1) == 1) {
        op.launch = {i, EventKind::after_step, 0};
        op.deadline = {i + 1 + delay, EventKind::before_forward, l};
      }
    }
  }
  return op;
}

Segment random_quarters(testing::Random& random, std::size_t layer) {
  const std::int64_t begin = testing::random_integer(random, 0, 3);
  const std::int64_t end = testing::random_integer(random, begin + 1, 4);
  return {layer, static_cast<double>(begin) / 4, static_cast<double>(end) / 4};
}

TEST(Coordinates, AgreeWithALookAtEachOneOfThem) {
  testing::Random random(13);
  int num_valid = 0;
  int num_overlaps = 0;
  int num_gaps = 0;
  for (int round = 0; round < 20000; ++round) {
    const Profile profile = testing::random_profile(random, {.max_layers = 3});
    const auto num_layers = static_cast<std::int64_t>(profile.layers.size());
    const EventOrder order(profile);
    const std::int64_t period = testing::random_integer(random, 1, 4);
    Plan plan = empty_plan(profile, period);
    for (std::int64_t i = testing::random_integer(random, 1, 5); i > 0; --i) {
      const auto layer = static_cast<std::size_t>(testing::random_integer(random, 0, num_layers - 1));
      Op op = random_op(random, order, period, random_quarters(random, layer));
      if (testing::random_integer(random, 0, 3) == 0) {
        const std::int64_t iteration = testing::random_integer(random, 0, period - 1);
        op.quantity = Quantity::gradients;
        op.launch = {iteration, after_backward, backward_sequence(profile).back()};
        op.deadline = {iteration, before_step, 0};
      }
      if (testing::random_integer(random, 0, 3) == 0 && op.deadline.kind == before_step) {
        op.segments.push_back(random_quarters(
            random, static_cast<std::size_t>(testing::random_integer(random, 0, num_layers - 1))));
        if (op.quantity == Quantity::parameters) {
          op.deadline.iteration = std::max(op.deadline.iteration, op.launch.iteration);
        }
      }
      plan.ops.push_back(op);
    }
    std::ranges::stable_sort(plan.ops, {}, [&](const Op& op) { return order.position(op.launch); });
    const Ledger ledger(plan, profile);
    if (ledger.has_overlap()) {
      ++num_overlaps;
      expect_rejected([&] { validate(plan, profile); }, {"overlap"});
    } else if (ledger.has_gap()) {
      ++num_gaps;
      expect_invalid(plan, {"no average of"}, profile);
    } else {
      ++num_valid;
      expect_valid(plan, profile);
    }
    ASSERT_FALSE(::testing::Test::HasFailure()) << to_json(plan) << to_json(profile);
  }
  EXPECT_GT(num_valid, 500);
  EXPECT_GT(num_overlaps, 500);
  EXPECT_GT(num_gaps, 500);
}

TEST(Coordinates, TakeTenThousandSegmentsOfOneLayer) {
  const Profile profile = two_layers();
  Plan plan = plan_of(2, {});
  constexpr int num_segments = 16384;
  for (int i = 0; i < num_segments; ++i) {
    plan.ops.push_back(averaging({{0, i * 1.0 / num_segments, (i + 1) * 1.0 / num_segments}},
                                 {0, after_backward, 0}, {0, before_step, 0}));
  }
  plan.ops.push_back(averaging({{1}}, {1, after_backward, 1}, {1, before_step, 0}));
  expect_valid(plan, profile);
  plan.ops[100].segments[0].end += 1e-9;
  expect_invalid(plan, {"ops[101]", "ops[100]"}, profile);
}

}  // namespace
}  // namespace dreamddp
