#include "dreamddp/units.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <random>
#include <string>

#include "core/expect_rejected.h"

namespace dreamddp {
namespace {

using testing::expect_rejected;

TEST(ParseSeconds, TakesEveryUnit) {
  EXPECT_EQ(parse_seconds("2s", "t"), 2.0);
  EXPECT_EQ(parse_seconds("0.2ms", "t"), 0.0002);
  EXPECT_EQ(parse_seconds("3us", "t"), 3e-6);
  EXPECT_EQ(parse_seconds("7 ns", "t"), 7e-9);
  EXPECT_EQ(parse_seconds("1e3ms", "t"), 1.0);
  EXPECT_EQ(parse_seconds(".5s", "t"), 0.5);
  EXPECT_EQ(parse_seconds("0", "t"), 0.0);
  EXPECT_EQ(parse_seconds("0ms", "t"), 0.0);
}

TEST(ParseSeconds, GivesTheSameDoubleInEveryUnit) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 20000; ++i) {
    const std::string digits =
        std::to_string(std::uniform_int_distribution<std::int64_t>(1, 999999999999999)(random));
    const int exponent = std::uniform_int_distribution<int>(-18, 2)(random);
    const auto text = [&](int shift) { return digits + "e" + std::to_string(exponent + shift); };
    const double seconds = std::stod(text(0));
    ASSERT_EQ(parse_seconds(text(0) + "s", "t"), seconds) << text(0);
    ASSERT_EQ(parse_seconds(text(3) + "ms", "t"), seconds) << text(0);
    ASSERT_EQ(parse_seconds(text(6) + "us", "t"), seconds) << text(0);
    ASSERT_EQ(parse_seconds(text(9) + "ns", "t"), seconds) << text(0);
  }
}

TEST(ParseNumBytes, TakesPowersOf1000AndOf1024) {
  EXPECT_EQ(parse_num_bytes("100", "n"), 100);
  EXPECT_EQ(parse_num_bytes("0", "n"), 0);
  EXPECT_EQ(parse_num_bytes("5B", "n"), 5);
  EXPECT_EQ(parse_num_bytes("0.29kB", "n"), 290);
  EXPECT_EQ(parse_num_bytes("1.1MB", "n"), 1100000);
  EXPECT_EQ(parse_num_bytes("2GB", "n"), 2000000000);
  EXPECT_EQ(parse_num_bytes("1TB", "n"), 1000000000000);
  EXPECT_EQ(parse_num_bytes("1KiB", "n"), 1024);
  EXPECT_EQ(parse_num_bytes("8 MiB", "n"), 8388608);
  EXPECT_EQ(parse_num_bytes("1.5GiB", "n"), 1610612736);
  EXPECT_EQ(parse_num_bytes("1TiB", "n"), std::int64_t{1} << 40);
  EXPECT_EQ(parse_num_bytes("9223372036854775807", "n"), std::numeric_limits<std::int64_t>::max());
}

TEST(ParseNumBytes, RoundsDownToWholeBytes) {
  EXPECT_EQ(parse_num_bytes("0.3KiB", "n"), 307);
  EXPECT_EQ(parse_num_bytes("1.9999", "n"), 1);
}

TEST(ParseBytesPerSecond, TakesBytesAndBits) {
  EXPECT_EQ(parse_bytes_per_second("10MB/s", "r"), 1e7);
  EXPECT_EQ(parse_bytes_per_second("10MiB/s", "r"), 10485760.0);
  EXPECT_EQ(parse_bytes_per_second("100B/s", "r"), 100.0);
  EXPECT_EQ(parse_bytes_per_second("100Mbit/s", "r"), 12.5e6);
  EXPECT_EQ(parse_bytes_per_second("100Mbps", "r"), 12.5e6);
  EXPECT_EQ(parse_bytes_per_second("1 Gbit/s", "r"), 125e6);
  EXPECT_EQ(parse_bytes_per_second("10Gbps", "r"), 1.25e9);
  EXPECT_EQ(parse_bytes_per_second("64kbit/s", "r"), 8000.0);
  EXPECT_EQ(parse_bytes_per_second("8bit/s", "r"), 1.0);
}

class BadTime : public ::testing::TestWithParam<std::string> {};
TEST_P(BadTime, IsRejectedByName) {
  expect_rejected([] { parse_seconds(GetParam(), "--latency"); },
                  {"--latency: got '" + GetParam() + "'", "0.2ms"});
}
INSTANTIATE_TEST_SUITE_P(Units, BadTime,
                         ::testing::Values("", "100", "5", "-5ms", "+5ms", "nan", "inf", "nans", "ms",
                                           "1e999s", "5 ", "5  ms", "5ms ", " 5ms", "5m", "5MS", "5min",
                                           "1.2.3s", "1e308TB", "5ms5", "0x10s"));

class BadSize : public ::testing::TestWithParam<std::string> {};
TEST_P(BadSize, IsRejectedByName) {
  expect_rejected([] { parse_num_bytes(GetParam(), "--staging"); },
                  {"--staging: got '" + GetParam() + "'", "8MiB"});
}
INSTANTIATE_TEST_SUITE_P(Units, BadSize,
                         ::testing::Values("", "-1", "-0", "-5MB", "nan", "MB", "8mib", "8KB", "8Mb", "8MB/s",
                                           "8 ", "1e999", "9223372036854775808", "99999999TiB", "1e19",
                                           "8MiBx"));

class BadRate : public ::testing::TestWithParam<std::string> {};
TEST_P(BadRate, IsRejectedByName) {
  expect_rejected([] { parse_bytes_per_second(GetParam(), "--bandwidth"); },
                  {"--bandwidth: got '" + GetParam() + "'", "100Mbit/s"});
}
INSTANTIATE_TEST_SUITE_P(Units, BadRate,
                         ::testing::Values("", "100", "-5MB/s", "0MB/s", "nan", "inf", "1e999MB/s",
                                           "1e-330bit/s", "10MB", "10mb/s", "10Mb/s", "10MB/sec", "10MB/s!",
                                           "fast", "1e308GB/s"));

TEST(FormatSeconds, KeepsThreeToFourDigits) {
  EXPECT_EQ(format_seconds(0), "0 s");
  EXPECT_EQ(format_seconds(0.00125), "1.25 ms");
  EXPECT_EQ(format_seconds(0.0125), "12.5 ms");
  EXPECT_EQ(format_seconds(0.125), "125 ms");
  EXPECT_EQ(format_seconds(0.99996), "1000 ms");
  EXPECT_EQ(format_seconds(1.5), "1.50 s");
  EXPECT_EQ(format_seconds(1234), "1234 s");
  EXPECT_EQ(format_seconds(2e-6), "2.00 us");
  EXPECT_EQ(format_seconds(3e-9), "3.00 ns");
  EXPECT_EQ(format_seconds(-0.00125), "-1.25 ms");
  EXPECT_EQ(format_seconds(std::numeric_limits<double>::infinity()), "inf s");
}

TEST(FormatNumBytes, UsesPowersOf1024) {
  EXPECT_EQ(format_num_bytes(0), "0 B");
  EXPECT_EQ(format_num_bytes(512), "512 B");
  EXPECT_EQ(format_num_bytes(8388608), "8.0 MiB");
  EXPECT_EQ(format_num_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_num_bytes(0x1p50), "1024.0 TiB");
}

TEST(FormatBytesPerSecond, UsesPowersOf1000) {
  EXPECT_EQ(format_bytes_per_second(12.5e6), "12.5 MB/s");
  EXPECT_EQ(format_bytes_per_second(100), "100 B/s");
  EXPECT_EQ(format_bytes_per_second(1e9), "1.0 GB/s");
}

}  // namespace
}  // namespace dreamddp
