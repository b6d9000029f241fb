#include "core/simulated_timeline.h"

#include <string>
#include <utility>

namespace dreamddp {
namespace {

struct Piece {
  SpanKind kind;
  std::string name;
  double seconds;
};

std::vector<Piece> named_pieces(const Profile& profile) {
  std::vector<Piece> pieces;
  for (const Layer& layer : profile.layers)
    pieces.push_back({SpanKind::forward, layer.name, layer.forward_seconds});
  for (const std::size_t l : backward_sequence(profile))
    pieces.push_back({SpanKind::backward, profile.layers[l].name, profile.layers[l].backward_seconds});
  pieces.push_back({SpanKind::step, "step", profile.step_seconds});
  return pieces;
}

}  // namespace

Timeline simulated_timeline(const Plan& plan, const Profile& profile, const ActionTape& tape,
                            VirtualClock& clock) {
  const std::vector<Piece> pieces = named_pieces(profile);
  std::vector<StepTimes> times;
  clock.run_period(&times);

  Timeline timeline;
  double now = 0;
  std::size_t next = 0;
  const auto add = [&](SpanKind kind, std::string name, std::int64_t iteration, double begin, double end) {
    timeline.spans.push_back({.kind = kind,
                              .name = std::move(name),
                              .rank = 0,
                              .iteration = iteration,
                              .begin_seconds = begin,
                              .end_seconds = end});
  };
  for (std::int64_t iteration = 0; iteration < plan.period; ++iteration) {
    for (std::size_t p = 0; p < pieces.size(); ++p) {
      const std::size_t piece = static_cast<std::size_t>(iteration) * pieces.size() + p;
      for (; next < tape.steps.size() && tape.steps[next].piece == piece; ++next) {
        const TapeStep& step = tape.steps[next];
        if (step.is_launch) {
          add(SpanKind::link, op_label(plan, step.op), plan.ops[step.op].launch.iteration,
              times[next].begin_seconds, times[next].end_seconds);
        } else if (times[next].begin_seconds < times[next].end_seconds) {
          add(SpanKind::wait, op_label(plan, step.op), iteration, now, times[next].end_seconds);
          now = times[next].end_seconds;
        }
      }
      add(pieces[p].kind, pieces[p].name, iteration, now, now + pieces[p].seconds);
      now += pieces[p].seconds;
    }
  }
  return timeline;
}

}  // namespace dreamddp
