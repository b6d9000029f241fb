"""The main job, measured: DDP, Local SGD and DreamDDP over an emulated slow link, in one run.

    python -m benchmarks.training [--steps 100] [..]

Arguments are passed on to `dreamddp train`; the run folder is kept where `--output` is given.

Prints, per planner, how far the measured iteration is from the one that was predicted before training, and
from the limit max(compute, link time per iteration): with the compute time of the profile (the slowest rank
in each layer, as planned with), and with that of the run itself (what the slowest rank did not wait; here the
time that ranks wait for each other's slower moments counts against the plan).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.result_file import write_result


def main() -> None:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--output", type=Path)
    options, passed_on = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        output = options.output or Path(folder) / "run"
        command = [sys.executable, "-m", "dreamddp", "train", "--json", "--output", str(output)]
        done = subprocess.run([*command, *passed_on], stdout=subprocess.PIPE, text=True, check=True)
        record = [json.loads(line) for line in (output / "record.jsonl").read_text().splitlines()]
    plans = {entry["planner"]: entry for entry in record if entry["kind"] == "plan"}
    rows = json.loads(done.stdout)["rows"]
    for row in rows:
        plan = plans[row["planner"]]
        row["limit_seconds"] = plan["limit_seconds"]
        row["iteration_over_limit"] = row["iteration_seconds"] / row["limit_seconds"]
        limit_of_the_run = max(row["compute_seconds"], plan["link_seconds"])
        row["iteration_over_limit_of_the_run"] = row["iteration_seconds"] / limit_of_the_run
        row["iteration_over_predicted"] = row["iteration_seconds"] / row["predicted_seconds"]
        print(
            f"{row['planner']:>10}: {row['iteration_seconds'] * 1e3:.0f} ms, speed-up {row['speedup']:.2f}, "
            f"over limit {row['iteration_over_limit']:.3f} "
            f"({row['iteration_over_limit_of_the_run']:.3f} with the run's own compute), "
            f"over predicted {row['iteration_over_predicted']:.3f}"
        )
    print(f"written to {write_result('training', {'rows': rows})}")


if __name__ == "__main__":
    main()
