#include "dreamddp/link.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/expect_rejected.h"

namespace dreamddp {
namespace {

using testing::expect_rejected;

constexpr double infinity = std::numeric_limits<double>::infinity();

Layer layer(const char* name, std::optional<std::int64_t> num_bytes, std::optional<double> transfer) {
  return {name, 1, 1, num_bytes, transfer, {}};
}

Link link_of(std::optional<double> bandwidth, int workers = 2) { return {bandwidth, 0, workers, 1}; }

TEST(LinkTransfer, IsThatOfARing) {
  EXPECT_EQ(transfer_seconds(1000, link_of(100, 2)), 10.0);
  EXPECT_EQ(transfer_seconds(1000, link_of(100, 4)), 15.0);
  EXPECT_EQ(transfer_seconds(1000, link_of(100, 1)), 0.0);
  EXPECT_EQ(transfer_seconds(0, link_of(100, 8)), 0.0);
}

TEST(LayerTransfer, ComesFromTheBandwidthWhereThereIsOne) {
  const Profile profile{{layer("a", 1000, 9.0), layer("b", 0, std::nullopt)}, 0, {}};
  EXPECT_EQ(layer_transfer_seconds(profile, link_of(100, 4)), (std::vector<double>{15, 0}));
}

TEST(LayerTransfer, ComesFromTheProfileOtherwise) {
  const Profile profile{{layer("a", std::nullopt, 9.0), layer("b", 0, std::nullopt)}, 0, {}};
  EXPECT_EQ(layer_transfer_seconds(profile, link_of(std::nullopt)), (std::vector<double>{9, 0}));
}

TEST(LayerTransfer, IsZeroForOneWorkerWhateverIsKnown) {
  const Profile profile{{layer("a", std::nullopt, 9.0), layer("b", 5, std::nullopt)}, 0, {}};
  EXPECT_EQ(layer_transfer_seconds(profile, link_of(std::nullopt, 1)), (std::vector<double>{0, 0}));
  EXPECT_EQ(layer_transfer_seconds(profile, link_of(100, 1)), (std::vector<double>{0, 0}));
}

TEST(LayerTransfer, NamesTheLayerOfWhichTooLittleIsKnown) {
  const Profile unsized{{layer("a", 5, 1.0), layer("h.0", std::nullopt, 1.0)}, 0, {}};
  expect_rejected([&] { layer_transfer_seconds(unsized, link_of(100)); },
                  {"layers[1] 'h.0': num_bytes: got none", "measured transfer times"});
  const Profile untimed{{layer("a", 5, 1.0), layer("h.0", 5, std::nullopt)}, 0, {}};
  expect_rejected([&] { layer_transfer_seconds(untimed, link_of(std::nullopt)); },
                  {"layers[1] 'h.0': transfer: got none", "Give a bandwidth"});
  const Profile unknown{{layer("a", std::nullopt, std::nullopt)}, 0, {}};
  expect_rejected([&] { layer_transfer_seconds(unknown, link_of(std::nullopt)); },
                  {"layers[0] 'a': transfer"});
  expect_rejected([&] { layer_transfer_seconds(unknown, link_of(100)); }, {"layers[0] 'a': num_bytes"});
}

TEST(LayerTransfer, RejectsARateAtWhichItTakesForever) {
  const Profile profile{{layer("a", std::int64_t{1} << 60, 1.0)}, 0, {}};
  expect_rejected([&] { layer_transfer_seconds(profile, link_of(1e-300)); },
                  {"bandwidth: got 1e-300", "'a'"});
}

TEST(LinkValidation, AcceptsTheSmallestValues) {
  EXPECT_NO_THROW(validate(Link{std::nullopt, 0, 1, 1}));
  EXPECT_NO_THROW(validate(Link{1e-3, 0, 1, 1}));
}

TEST(LinkValidation, RejectsBandwidthsThatAreNotAboveZero) {
  for (const double bandwidth : {0.0, -1.0, infinity, std::nan("")}) {
    expect_rejected([&] { validate(link_of(bandwidth)); },
                    {"bandwidth: got ", "a finite rate above 0, such as 100Mbit/s"});
  }
}

TEST(LinkValidation, RejectsOtherFieldsOutOfRange) {
  for (const double latency : {-1e-9, infinity, std::nan("")}) {
    expect_rejected([&] { validate(Link{std::nullopt, latency, 2, 1}); }, {"latency: got "});
  }
  expect_rejected([] { validate(Link{std::nullopt, 0, 0, 1}); }, {"workers: got 0"});
  expect_rejected([] { validate(Link{std::nullopt, 0, 2, 0}); }, {"in_flight: got 0"});
}

}  // namespace
}  // namespace dreamddp
