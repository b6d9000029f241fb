#include "dreamddp/due_plan.h"

#include <string>

#include "dreamddp/error.h"
#include "dreamddp/planner.h"

namespace dreamddp {

Profile with_due_layers(Profile profile, const std::vector<bool>& is_due) {
  if (is_due.size() != profile.layers.size()) {
    reject({.field = "is_due",
            .value = std::to_string(is_due.size()),
            .allowed = "one for each of the " + std::to_string(profile.layers.size()) + " layers",
            .remedy = "Decide about every layer of the profile."});
  }
  for (std::size_t layer = 0; layer < is_due.size(); ++layer) {
    if (is_due[layer]) continue;
    profile.layers[layer].num_bytes = 0;
    if (profile.layers[layer].transfer_seconds) profile.layers[layer].transfer_seconds = 0;
  }
  return profile;
}

Plan plan_due_layers(const Profile& profile, const Link& link, const std::vector<bool>& is_due,
                     double slack) {
  Plan plan = make_plan("balanced", with_due_layers(profile, is_due), link, {.period = 1, .slack = slack});
  plan.planner = "policy";
  return plan;
}

std::string_view treatment_name(Treatment treatment) {
  switch (treatment) {
    case Treatment::skipped:
      return "skipped";
    case Treatment::alone:
      return "alone";
    case Treatment::merged:
      return "merged";
  }
  return "";
}

std::vector<Treatment> treatments(const Plan& plan) {
  std::vector<Treatment> treatments(plan.layers.size(), Treatment::skipped);
  for (const Op& op : plan.ops) {
    bool is_merged = false;
    for (const Segment& segment : op.segments)
      is_merged = is_merged || segment.layer != op.segments.front().layer;
    for (const Segment& segment : op.segments) {
      Treatment& treatment = treatments[segment.layer];
      if (treatment != Treatment::merged) treatment = is_merged ? Treatment::merged : Treatment::alone;
    }
  }
  return treatments;
}

}  // namespace dreamddp
