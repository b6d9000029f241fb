#include "dreamddp/link.h"

#include <cmath>

#include "core/decimal.h"
#include "core/profile_text.h"
#include "dreamddp/error.h"

namespace dreamddp {

void validate(const Link& link) {
  if (link.bandwidth_bytes_per_second) {
    const double bandwidth = *link.bandwidth_bytes_per_second;
    if (!std::isfinite(bandwidth) || bandwidth <= 0) {
      reject({"bandwidth", shortest_text(bandwidth), "a finite rate above 0, such as 100Mbit/s",
              "Correct it, or leave it out to use the measured transfer times"});
    }
  }
  if (!std::isfinite(link.latency_seconds) || link.latency_seconds < 0) {
    reject({"latency", shortest_text(link.latency_seconds), "a finite time of at least 0, such as 0.2ms",
            "Give 0 for a link without latency"});
  }
  if (link.workers < 1) {
    reject({"workers", std::to_string(link.workers), "at least 1", "Count this worker, too"});
  }
  if (link.in_flight < 1) {
    reject({"in_flight", std::to_string(link.in_flight), "at least 1", "Give 1 for one op at a time"});
  }
}

double transfer_seconds(double num_bytes, const Link& link) {
  const double workers = link.workers;
  return 2 * (workers - 1) / workers * num_bytes / link.bandwidth_bytes_per_second.value();
}

std::vector<double> layer_transfer_seconds(const Profile& profile, const Link& link) {
  validate(link);
  std::vector<double> seconds;
  seconds.reserve(profile.layers.size());
  for (std::size_t l = 0; l < profile.layers.size(); ++l) {
    const Layer& layer = profile.layers[l];
    if (link.workers == 1) {
      seconds.push_back(0);  // nobody to average with
    } else if (link.bandwidth_bytes_per_second) {
      if (!layer.num_bytes) {
        reject({layer_place(profile, l) + ": num_bytes", "none", "its size, since a bandwidth is given",
                layer.transfer_seconds ? "Leave the bandwidth out to use the measured transfer times"
                                       : "Add num_bytes to the profile"});
      }
      seconds.push_back(transfer_seconds(static_cast<double>(*layer.num_bytes), link));
    } else if (layer.transfer_seconds) {
      seconds.push_back(*layer.transfer_seconds);
    } else if (layer.num_bytes == 0) {
      seconds.push_back(0);
    } else {
      reject({layer_place(profile, l) + ": transfer", "none",
              "its measured transfer time, since no bandwidth is given",
              layer.num_bytes ? "Give a bandwidth" : "Add transfer, or num_bytes and give a bandwidth"});
    }
    if (!std::isfinite(seconds.back())) {
      reject({"bandwidth", shortest_text(link.bandwidth_bytes_per_second.value_or(0)),
              "a rate at which " + layer_place(profile, l) + " is transferred in finite time",
              "Give a higher rate"});
    }
  }
  return seconds;
}

}  // namespace dreamddp
