// Policies: rules that decide, while training, which layers are averaged next. Design section 10.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dreamddp {

/// What the ranks agreed on of one layer in one iteration: numbers that are equal on all of them.
struct LayerSignal {
  /// Cosine of the angle between the layer's gradient and that of its last average (before the first average,
  /// its first one), mean over ranks, in [-1, 1]. NaN where no rank had both.
  double similarity = std::numeric_limits<double>::quiet_NaN();
};

/// When a decision is asked for.
struct LayerMoment {
  std::int64_t iteration = 0;  ///< to decide about, counted from the start of training
  /// Iterations since the layer's last average, or since the start of training: each is one local step.
  std::int64_t staleness = 0;
};

/// The rule that a decision comes from.
enum class Rule { fixed_period, bounded_staleness, direction, adaptive_direction };

std::string_view rule_name(Rule rule);

/// Whether a layer is averaged in an iteration, and why.
struct Decision {
  bool is_due = false;
  Rule rule = Rule::fixed_period;  ///< that made the layer due, or that was asked last
  /// What the rule looked at: the iteration's place in the layer's period (from 0), the staleness, or the
  /// moving average of the similarity.
  double value = 0;
  double limit = 0;  ///< what it was compared with: the period, the most staleness, or the threshold

  bool operator==(const Decision&) const = default;
};

/// Decides for one layer. The same calls with the same arguments give the same decisions on every machine.
///
/// In each iteration: synchronised(), where the layer was averaged in it, else observe(); then decide() for
/// the next one. Not thread-safe.
class Policy {
 public:
  virtual ~Policy() = default;

  virtual Decision decide(const LayerMoment& moment) const = 0;
  /// The layer was not averaged in this iteration, and this is what was seen of it.
  virtual void observe(const LayerSignal& /*signal*/) {}
  /// The layer was averaged in this iteration, whoever decided so: its gradient is the new reference.
  virtual void synchronised() {}
  /// Whether it looks at LayerSignal::similarity, which costs a reference gradient.
  virtual bool needs_similarity() const { return false; }

  /// With its state.
  virtual std::unique_ptr<Policy> clone() const = 0;
  /// What observe() and synchronised() have changed, for checkpoints; exact.
  virtual std::vector<double> state() const { return {}; }
  /// @throws std::invalid_argument for a state of another kind of policy
  virtual void set_state(std::span<const double> state);
  /// As in parse_policies().
  virtual std::string to_json() const = 0;
};

/// Due in every iteration r with (r + 1 + phase) mod period = 0: by the calendar, whatever else averages the
/// layer. Layers with different phases take turns.
/// @throws std::invalid_argument for a period outside 1 .. longest_period, or a phase outside 0 .. period - 1
std::unique_ptr<Policy> fixed_period(std::int64_t period, std::int64_t phase = 0);

/// Phases for layers with fixed periods, so that iterations have about equally much to send: layers in order
/// of size, each where its iterations have least so far. Deterministic.
/// @param num_bytes of each layer; any unit
/// @return one per layer, in 0 .. period - 1
/// @throws std::invalid_argument for periods out of range and sizes that are no finite numbers of at least 0
std::vector<std::int64_t> staggered_phases(std::span<const std::int64_t> periods,
                                           std::span<const double> num_bytes);

/// Due when the staleness has reached `most`: so many iterations after the last average, whoever decided it.
/// @throws std::invalid_argument for `most` outside 1 .. longest_period
std::unique_ptr<Policy> bounded_staleness(std::int64_t most);

struct DirectionOptions {
  /// Due when the moving average of the similarity is below it; in [-1, 1]. For the adaptive threshold in
  /// (0, 1]: the fraction of the layer's own usual similarity.
  double threshold = 0.5;
  /// Weight of what was before in the moving average m := smoothing m + (1 - smoothing) similarity, which
  /// is 1 at an average; in [0, 1).
  double smoothing = 0.5;
  /// The same for the layer's own history, which goes on over averages. Adaptive threshold only.
  double history_smoothing = 0.98;
};

/// Due when the layer's gradient no longer has the direction that it had at its last average. Never before
/// a similarity was seen.
/// @throws std::invalid_argument for options out of range
std::unique_ptr<Policy> direction_threshold(const DirectionOptions& options = {});

/// The same with a threshold that the layer's own history h := history_smoothing h + (1 - history_smoothing)
/// similarity sets, begun with the first similarity: threshold * h where h is above 0, else h itself.
/// @throws std::invalid_argument for options out of range
std::unique_ptr<Policy> adaptive_threshold(const DirectionOptions& options = {});

/// Bounded staleness as the hard limit over another policy: at `most_staleness` the layer is due, whatever
/// that one says; before it, the other decides. Where both say so, staleness is the reason.
/// @throws std::invalid_argument for `most_staleness` out of range, and for no policy
std::unique_ptr<Policy> combined(std::unique_ptr<Policy> policy, std::int64_t most_staleness);

/// A pattern of layer names, with `*` for any text and `?` for any character, and the policy of the layers
/// that match it.
using PolicyRule = std::pair<std::string, std::shared_ptr<const Policy>>;

/// Parses {"*.wte": {"policy": "fixed-period", "period": 8}, "*": {"policy": "combined", ..}}, in the order
/// of the text. Policies and their keys, of which those with a default may be absent:
///   fixed-period: period, phase;  bounded-staleness: most;  direction: threshold, smoothing;
///   adaptive-direction: threshold, smoothing, history_smoothing;  combined: most_staleness, under (a policy;
///   direction by default).
/// @throws std::invalid_argument naming the pattern and the field, or the position of a syntax error
std::vector<PolicyRule> parse_policies(std::string_view json);

/// parse_policies() of it gives equal rules.
std::string to_json(std::span<const PolicyRule> rules);

/// Whether a pattern matches a whole name.
bool matches(std::string_view pattern, std::string_view name);

/// The policies of all layers of a model, with their counters: what every rank must run in step.
///
/// Decisions for iteration r + 1 depend on nothing but the rules and the signals of the iterations up to r.
/// Not thread-safe; copies are independent.
class LayerPolicies {
 public:
  /// The first rule whose pattern matches decides for a layer. Nothing is due in first_iteration by
  /// similarity or staleness, as ranks start equal.
  /// @throws std::invalid_argument for a layer that no pattern matches, and for a pattern that matches none
  LayerPolicies(const std::vector<std::string>& layers, std::span<const PolicyRule> rules,
                std::int64_t first_iteration = 0);
  LayerPolicies(const LayerPolicies& other);
  LayerPolicies(LayerPolicies&&) = default;
  LayerPolicies& operator=(LayerPolicies) = delete;

  /// The iteration that decisions() are about.
  std::int64_t iteration() const { return iteration_; }
  /// For every layer.
  const std::vector<Decision>& decisions() const { return decisions_; }
  std::int64_t staleness(std::size_t layer) const { return staleness_.at(layer); }
  /// For every layer, whether its policy looks at the similarity.
  std::vector<bool> need_similarity() const;

  /// Ends the iteration: layers that were due, and those that were averaged out of turn, are fresh; the
  /// signals count for the others. Decides for the next iteration.
  /// @param signals one per layer
  /// @param out_of_turn layers that were averaged without being due
  void iteration_ends(std::span<const LayerSignal> signals, std::span<const std::size_t> out_of_turn = {});

  /// All that it takes to go on exactly, as one line of JSON.
  std::string state() const;
  /// @throws std::invalid_argument for a state of other layers or policies
  void set_state(std::string_view state);

 private:
  void decide();

  std::vector<std::string> layers_;
  std::vector<std::unique_ptr<Policy>> policies_;
  std::vector<std::int64_t> staleness_;
  std::vector<Decision> decisions_;
  std::int64_t iteration_;
};

}  // namespace dreamddp
