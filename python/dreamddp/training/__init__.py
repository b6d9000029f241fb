"""What `dreamddp train` does: real training, one planner after the other, over an emulated or the real link."""
