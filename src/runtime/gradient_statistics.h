// How the gradients of layers turn from iteration to iteration: what policies decide from. Design section 10.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace dreamddp {

// Note [Sketches of gradients]
//
// A similarity needs the earlier gradient. Where a copy would take too much memory, a sketch of k numbers
// stands for it: the flattened gradient is laid out in rows of k, each row gets a random sign, and the rows
// are summed. Inner products of sketches are those of the gradients on average over the signs. Where no
// column of these rows holds much more than its share, a similarity s has a standard deviation of
// sqrt((1 - s^2)^2 / k) <= sqrt(1 / k), the relative error of a norm is sqrt(1 / (2 k)). With a prime k,
// the columns of a weight do not meet in one. The signs are fixed: all ranks, runs and machines have the
// same.

/// A prime: similarities to 1.6% of one standard deviation.
inline constexpr std::int64_t default_sketch_size = 4093;

struct GradientStatisticsOptions {
  /// Iterations between two gradients that are compared; each at least 1, ascending.
  std::vector<std::int64_t> lags = {};
  bool with_last_average = true;  ///< whether to compare with the gradient of the last average
  /// k, numbers that stand for a gradient that has more; 0: gradients are copied whole.
  std::int64_t sketch_size = default_sketch_size;
};

/// Of one layer in one iteration. NaN where there is no such gradient, or a gradient is 0.
struct GradientStatistic {
  static constexpr double unknown = std::numeric_limits<double>::quiet_NaN();

  double norm = unknown;
  double last_average_similarity = unknown;  ///< cosine with the gradient of the last average, or the first
  std::vector<double> lag_similarities;      ///< of each lag, the cosine with the gradient so long ago
};

/// Gradients are those in `grad` of the parameters, whatever has been accumulated in it.
///
/// For every iteration: observe() of layers whose gradients are complete, in any order; then
/// iteration_ends(). Not thread-safe. What it computes lies on the parameters' device; it blocks until it is
/// there.
class GradientStatistics {
 public:
  /// @param layers of each layer its parameters, of any dtype that is real
  /// @throws std::invalid_argument for options out of range
  GradientStatistics(std::vector<std::vector<at::Tensor>> layers, GradientStatisticsOptions options);

  /// Compares the layer's gradient with the earlier ones. Its first one counts as that of an average: ranks
  /// start equal.
  /// @param is_averaged whether the layer is averaged in this iteration: later ones compare with this one
  void observe(std::size_t layer, bool is_averaged);
  /// Layers that were not observed had no gradient in this iteration.
  void iteration_ends();

  /// Of the iteration under way: as unknown as possible before observe().
  const GradientStatistic& operator[](std::size_t layer) const { return layers_.at(layer).statistic; }
  std::size_t size() const { return layers_.size(); }
  /// Bytes that earlier gradients, or their sketches, take in all.
  std::int64_t memory_bytes() const;

  /// The earlier gradients of one layer, for checkpoints.
  struct LayerState {
    at::Tensor rows;            ///< [number of kept gradients, numbers of each], float32
    std::vector<double> norms;  ///< of each row; NaN where the row holds none
    std::int64_t num_iterations = 0;
  };
  LayerState state(std::size_t layer) const;
  /// @throws std::invalid_argument for the state of a layer of another size, or of other options
  void set_state(std::size_t layer, const LayerState& state);

 private:
  struct Layer {
    std::vector<at::Tensor> parameters;
    std::int64_t num_elements = 0;
    at::Tensor signs;  ///< of each row of a sketch; undefined for whole copies
    at::Tensor rows;   ///< ring of the last gradients, then that of the last average
    std::vector<double> norms;
    std::int64_t num_iterations = 0;
    bool is_observed = false;
    GradientStatistic statistic;
  };

  at::Tensor condensed(const Layer& layer) const;
  void forget_statistic(Layer& layer) const;

  GradientStatisticsOptions options_;
  std::int64_t ring_size_ = 0;
  std::vector<Layer> layers_;
};

}  // namespace dreamddp
